"""Where each set that is learnt from has its content, under which licence, and who is credited."""

# set -> (source at a commit, licence); `../shared/data/retrieval/README.md` says how they were made
SOURCES = {
    "acebench-en": ("ACEBench/ACEBench @ e6db74b", "MIT"),
    "acebench-zh": ("ACEBench/ACEBench @ e6db74b", "MIT"),
    "apibench": ("ShishirPatil/gorilla @ 6ea5797", "Apache-2.0"),
    "corpus": (
        "requests written for this project by a language model; tools: TheAgentArk/Toucan",
        "Apache-2.0; tools MIT",
    ),
    "home-assistant-intents": ("home-assistant/intents @ aa55003", "CC-BY-4.0"),
    "nestful": ("IBM/NESTFUL @ 053cbde", "Apache-2.0"),
    "sealtools": ("fairyshine/Seal-Tools @ ce753ec", "Apache-2.0"),
    "smithery-descriptions": ("TheAgentArk/Toucan, mcp_servers", "MIT"),
    "smithery-requests": (
        "requests by this project's offline grammar; tools: TheAgentArk/Toucan, mcp_servers",
        "Apache-2.0; tools MIT",
    ),
    "smithery-written": (
        "requests written for this project by a language model; tools: TheAgentArk/Toucan,"
        " mcp_servers",
        "Apache-2.0; tools MIT",
    ),
    "tldr-en": ("tldr-pages/tldr @ 08e345f", "CC-BY-4.0"),
    "tldr-i18n": ("tldr-pages/tldr @ 08e345f", "CC-BY-4.0"),
    "toolalpaca": ("tangqiaoyu/ToolAlpaca @ 1890699", "Apache-2.0"),
    "toolbench-rapidapi": ("THUNLP-MT/StableToolBench @ aa4ed9f", "Apache-2.0"),
    "tooleyes": ("Junjie-Ye/ToolEyes @ c818fce, Junjie-Ye/RoTBench @ 637e43a", "Apache-2.0"),
    "tooltalk": ("microsoft/ToolTalk @ e05f4ce", "MIT"),
    "vendor-mcp-evals": (
        "microsoft/mcp @ 557fca1, apify/apify-mcp-server @ 91ee491, grafana/mcp-grafana @ c6e492b,"
        " olgasafonova's miro-mcp-server @ 13d9420, mediawiki-mcp-server @ 2ef321a and"
        " productplan-mcp-server @ 90210fb",
        "MIT; Grafana Apache-2.0",
    ),
}  # fmt: skip
CREDITS = """CC BY 4.0: tldr-pages contributors (pages cut into examples, options turned into
schemas) and Home Assistant intents contributors (test sentences sampled, intents turned into
schemas). Apache-2.0 and MIT: the authors of each repository. No text of a set is in the weights'
files."""
