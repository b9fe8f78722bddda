"""The crawl engine: requests, pages, pacing, completeness."""
