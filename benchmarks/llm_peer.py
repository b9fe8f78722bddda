"""A peer's client over the same prompts: run by the interpreter of a venv that has it.

    <peer's python> benchmarks/llm_peer.py NAME URL PROMPTS.json CONCURRENCY

NAME: `distilabel` (its own unit of concurrency: batches, each waits for its slowest),
`distilabel-free` (its `agenerate` behind a semaphore of ours, which it does not offer itself),
`curator` (its own scheduler). Prints one JSON object. Knows nothing of Toolmill.
"""

import asyncio
import json
import resource
import sys
import time
import warnings


def distilabel(url, prompts, concurrency):
    llm = _distilabel(url)
    began = time.perf_counter()
    made = []
    for first in range(0, len(prompts), concurrency):
        batch = prompts[first : first + concurrency]
        made += llm.generate(inputs=batch, max_new_tokens=1024)
    return began, sum(bool(one["generations"][0]) for one in made)


def distilabel_free(url, prompts, concurrency):
    llm = _distilabel(url)

    async def run():
        slots = asyncio.Semaphore(concurrency)

        async def one(prompt):
            async with slots:
                return await llm.agenerate(input=prompt, max_new_tokens=1024)

        return await asyncio.gather(*(one(prompt) for prompt in prompts))

    began = time.perf_counter()
    made = asyncio.run(run())
    return began, sum(bool(one["generations"][0]) for one in made)


def _distilabel(url):
    from distilabel.models import OpenAILLM

    llm = OpenAILLM(model="bench", base_url=url, api_key="none", max_retries=6, timeout=60)
    llm.load()
    return llm


def curator(url, prompts, concurrency):
    import os
    import tempfile

    os.environ.update(TELEMETRY_ENABLED="false", CURATOR_DISABLE_CACHE="1", OPENAI_API_KEY="none")
    os.environ["CURATOR_CACHE_DIR"] = tempfile.mkdtemp()
    from bespokelabs import curator as library

    class Writer(library.LLM):
        def prompt(self, input):
            return input["messages"]

        def parse(self, input, response):
            return {"text": response if isinstance(response, str) else str(response)}

    limits = {
        "base_url": url, "max_requests_per_minute": 1_000_000, "max_tokens_per_minute": 10**9,
        "max_concurrent_requests": concurrency, "max_retries": 6, "request_timeout": 60,
    }  # fmt: skip
    writer = Writer(model_name="bench", backend="openai", backend_params=limits)
    began = time.perf_counter()
    made = writer([{"messages": prompt} for prompt in prompts])
    rows = getattr(made, "dataset", made)
    return began, sum(bool(row["text"]) for row in rows)


def main():
    warnings.simplefilter("ignore")
    name, url, path, concurrency = sys.argv[1:]
    with open(path) as file:
        prompts = json.load(file)
    arms = {"distilabel": distilabel, "distilabel-free": distilabel_free, "curator": curator}
    began, answered = arms[name](url, prompts, int(concurrency))
    wall = time.perf_counter() - began
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"wall": wall, "cpu": usage.ru_utime + usage.ru_stime, "answered": answered}))


if __name__ == "__main__":
    main()
