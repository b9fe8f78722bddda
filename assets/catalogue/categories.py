"""Categories: what a server is about, by the words of its name and description."""

import re

_WORDS = {
    "code & repositories": "git github gitlab bitbucket repository repositories code coding commit"
    " ide vscode developer developers programming refactor lint debug debugger ast codebase npm",
    "databases": "database databases sql postgres postgresql mysql sqlite mongodb mongo redis"
    " clickhouse snowflake bigquery duckdb elasticsearch neo4j supabase query schema mssql vector",
    "cloud & operations": "aws azure gcp cloud kubernetes k8s docker terraform deploy deployment"
    " infrastructure devops monitoring grafana prometheus datadog sentry logs ci cd cloudflare"
    " vercel serverless container incident",
    "web & search": "search browser web scrape scraping scraper crawl crawler fetch url playwright"
    " puppeteer selenium website internet serp brave tavily",
    "files & documents": "file files filesystem folder pdf document documents word excel"
    " spreadsheet markdown csv ocr obsidian note notes wiki",
    "productivity": "notion calendar email gmail jira linear asana trello todoist task tasks"
    " project todo schedule meeting confluence airtable drive ticket crm hubspot salesforce",
    "communication": "slack discord telegram whatsapp message messages messaging chat sms twilio"
    " teams mail email social twitter linkedin reddit mastodon youtube",
    "finance & commerce": "finance financial stock stocks trading crypto bitcoin ethereum"
    " blockchain wallet token defi solana payment payments stripe paypal invoice invoices shopify"
    " commerce market price bank accounting",
    "media & design": "image images video audio music speech voice tts figma design 3d blender"
    " unity game photo render transcription spotify",
    "AI & memory": "llm memory agent agents rag embedding embeddings knowledge openai anthropic"
    " gemini prompt reasoning thinking huggingface chatgpt",
    "science & data": "research paper papers arxiv science scientific math statistics data"
    " dataset analytics analysis chart biology medical health chemistry genome weather geospatial",
    "places & travel": "map maps location geocoding travel flight flights hotel hotels weather"
    " transit traffic route restaurant time timezone",
    "security": "security vulnerability vulnerabilities cve pentest malware threat auth secrets"
    " scan scanner osint forensic encryption",
    "devices & home": "iot smart home device devices android ios adb sensor printer robot"
    " raspberry arduino applescript macos windows",
}
# Each run of such characters is tried from its beginning only.
_OWNER = re.compile(
    r"(?<![\w\-])(?<![\w\-]\.)(?:[\w\-]+\.)+[\w\-]+/|@[\w\-]+/|(?<![\w\-])[\w\-]+/(?=[\w\-])"
)
CATEGORIES = (*_WORDS, "other")
_LOOKUP = {name: frozenset(words.split()) for name, words in _WORDS.items()}


def find_category(text: str, names: str = "") -> str:
    """The category of a text. `names`, what the server is called anywhere, counts twice; who
    publishes it (`io.github.owner/`) says nothing."""
    text, names = _OWNER.sub(" ", text), _OWNER.sub(" ", names)
    words = re.findall(r"[a-z0-9]+", _split_words(text).lower())
    words += re.findall(r"[a-z0-9]+", _split_words(names).lower()) * 2
    scores = {
        name: sum(word in vocabulary for word in words) for name, vocabulary in _LOOKUP.items()
    }
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] else "other"


def _split_words(text: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
