"""From a listing to an installed package: recipes, placeholders, resolving, fetching."""
