"""Inventory: stock of a small warehouse, kept in one JSON file."""

import json
import os
from pathlib import Path

from stdio import serve, tool

FILE = Path(os.environ.get("INVENTORY_FILE") or Path.home() / "inventory.json")
SKU = {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$", "description": "Article, e.g. AB-0042"}
QUANTITY = {"type": "integer", "minimum": 1, "description": "Number of pieces"}


def load():
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def save(stock):
    FILE.write_text(json.dumps(stock), encoding="utf-8")


@tool(
    "Book received goods into the stock at a shelf.",
    required=["sku", "quantity"],
    read_only=False,
    sku=SKU,
    quantity=QUANTITY,
    shelf={"type": "string", "description": "Where the goods are put, e.g. B3"},
)
def receive_goods(sku, quantity, shelf=None):
    stock = load()
    item = stock.setdefault(sku, {"quantity": 0, "shelf": shelf})
    item["quantity"] += quantity
    item["shelf"] = shelf or item["shelf"]
    save(stock)
    return item


@tool(
    "Take goods out of the stock for an order; fails when there are too few pieces.",
    required=["sku", "quantity", "order_number"],
    read_only=False,
    sku=SKU,
    quantity=QUANTITY,
    order_number={"type": "string", "description": "The customer's order"},
)
def pick_goods(sku, quantity, order_number):
    stock = load()
    if stock.get(sku, {"quantity": 0})["quantity"] < quantity:
        raise ValueError(f"fewer than {quantity} pieces of {sku} for order {order_number}")
    stock[sku]["quantity"] -= quantity
    save(stock)
    return stock[sku]


@tool("Look up how many pieces of an article are in stock and where.", required=["sku"], sku=SKU)
def stock_level(sku):
    return load().get(sku, {"quantity": 0, "shelf": None})


@tool(
    "List articles that must be reordered because their stock fell below a threshold.",
    threshold={"type": "integer", "minimum": 0, "default": 5, "description": "Pieces"},
)
def reorder_list(threshold=5):
    return [sku for sku, item in sorted(load().items()) if item["quantity"] < threshold]


serve()
