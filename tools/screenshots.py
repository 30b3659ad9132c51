"""Take the pictures of the documentation: the web console, and the report of the pipeline.

    python tools/screenshots.py [console] [report]

Run it in the root of the project after a change of these pages. It needs Chromium (Debian package
`chromium`), and Java for the report. The console shows a queue manager ALPHA with some traffic, a
peer BETA and a computer that refuses connections; all have loopback addresses.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page, sync_playwright

import lanner
from demo.generator import generate

DOCS: Final = Path("docs")
LANNER: Final = Path(sys.executable).with_name("lanner")
ALPHA, BETA, REFUSING = "127.18.0.1", "127.18.0.2", "127.18.0.9"
# The plots of the console show at least a minute.
TRAFFIC_SECONDS: Final = 70
ENTERPRISE: Final = """
sites = ["HQ", "BRANCH", "BERLIN"]
links = [
    {sites = ["HQ", "BRANCH"], cost = 5},
    {sites = ["HQ", "BERLIN"], cost = 9},
    {sites = ["BRANCH", "BERLIN"], cost = 2},
]
"""
COMPUTERS: Final = {"GATE-HQ": "HQ", "WAREHOUSE-01": "BRANCH", "WAREHOUSE-02": "BRANCH", "POS-BERLIN": "BERLIN"}


@contextlib.contextmanager
def serving(name: str, address: str, data: Path) -> Iterator[lanner.QueueManager]:
    """Run a queue manager, and yield a connection to it."""
    with (data.parent / f"{name}.log").open("w") as log:
        command: list[str | Path] = [LANNER, "serve", "--name", name, "--bind", address, "--data", data, "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        try:
            if process.stdout is not None:
                process.stdout.readline()
            with lanner.connect(data=data) as manager:
                yield manager
        finally:
            process.terminate()
            process.wait()


def order(number: int) -> lanner.Message:
    body = f'{{"order": {number}, "items": 3, "express": false}}'
    if number % 3:
        body = f"<order><number>{number}</number><customer>Falke GmbH</customer><item>eggs</item></order>"
    return lanner.Message(body=body, label=f"Order 2026-{number}", recoverable=True)


def fill(alpha: lanner.QueueManager) -> None:
    """Create queues in states that need attention."""
    orders = alpha.create_queue("orders", label="Orders of the shop", journal=True)
    orders.send_many(order(48113 + number) for number in range(160))
    orders.receive_many(5)
    orders.move(orders.peek(0).lookup_id, "retry")
    invoices = alpha.create_queue("invoices", quota_kb=11)
    invoices.send_many(lanner.Message(body="9 eggs", label=f"Invoice {n}", recoverable=True) for n in range(28))
    used = invoices.attributes().total_bytes
    invoices.set(quota=used * 100 // 82 // 1024)
    for name in ("labels.print", "empty.one"):
        alpha.create_queue(name)
    returns = alpha.create_queue("returns")
    for number in range(3):
        late = lanner.Message(body="late", label=f"Return {number}", time_to_be_received=0, use_dead_letter_queue=True)
        returns.send(late)
    refused = alpha.open(rf"DIRECT=TCP:{REFUSING}\private$\stock")
    refused.send_many(lanner.Message(body="9 eggs", label=f"Stock {n}", recoverable=True) for n in range(14))


def provision(alpha: lanner.QueueManager, folder: Path) -> None:
    text = ENTERPRISE
    for number, (name, site) in enumerate(COMPUTERS.items(), 1):
        text += (
            f'\n[computers.{name}]\nidentifier = "0f5ef1a4-6a52-4a2b-9f0e-6ad5a3c0b8{number:02}"\nsites = ["{site}"]\n'
        )
        text += "routing_server = true\n" if name.startswith("GATE") else ""
    (folder / "enterprise.toml").write_text(text)
    alpha.enterprise.apply(folder / "enterprise.toml")


@contextlib.contextmanager
def traffic(data: Path) -> Iterator[None]:
    """Send and receive in the background."""
    is_over = threading.Event()

    def work() -> None:
        with lanner.connect(data=data) as alpha:
            labels, orders = alpha.open("labels.print"), alpha.open("orders")
            mirror = alpha.open(rf"DIRECT=TCP:{BETA}\private$\mirror")
            for number in range(1_000_000):
                if is_over.wait(0.1):
                    return
                labels.send(f"label {number}")
                labels.receive(timeout=1.0)
                if number % 25 == 0:
                    orders.send(order(48300 + number))
                    mirror.send(lanner.Message(body="copy", recoverable=True))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def take_console(browser: Browser, folder: Path) -> None:
    data = folder / "alpha"
    with serving("BETA", BETA, folder / "beta") as beta, serving("ALPHA", ALPHA, data) as alpha:
        beta.create_queue("mirror")
        alpha.add_user("alice", "correct horse", role="administrator")
        fill(alpha)
        provision(alpha, folder)
        path = alpha.open("orders").path_name
        with traffic(data):
            page = browser.new_page(base_url=f"http://{ALPHA}:15801", viewport={"width": 1280, "height": 720})
            log_on(page)
            time.sleep(TRAFFIC_SECONDS)
            picture(page, "console/overview.png", "/", height=1170)
            picture(page, "console/queue.png", f"/queue?name={path}", open_message, height=1000)
            picture(page, "console/purge.png", f"/queue/purge?name={path}", type_name, height=661)
            picture(page, "console/sites.png", "/peers?view=sites", height=720)


def log_on(page: Page) -> None:
    page.goto("/login")
    page.fill("#user", "alice")
    page.fill("#password", "correct horse")
    page.click("button[type=submit]")
    page.wait_for_url(lambda address: "/login" not in address)


def open_message(page: Page) -> None:
    page.get_by_role("link", name="Order 2026-48121").click()


def type_name(page: Page) -> None:
    page.fill("#typed", "orders")


def picture(page: Page, name: str, path: str, prepare: Callable[[Page], None] | None = None, *, height: int) -> None:
    page.set_viewport_size({"width": 1280, "height": height})
    page.goto(path)
    if prepare is not None:
        prepare(page)
    # Plots and rates come with the next samples.
    page.wait_for_timeout(3000)
    page.screenshot(path=DOCS / name)
    print(f"{dt.datetime.now(dt.UTC):%H:%M:%S} {DOCS / name}")


def take_report(browser: Browser, folder: Path) -> None:
    generate(seed=7, orders=300).write_files(folder / "packets")
    (folder / "pipeline.toml").write_text(
        '[lake]\npath = "lake"\n[ingest]\npacket_files = "packets"\n[report]\ntitle = "Orders"\n'
        '[spark.settings]\n"spark.sql.shuffle.partitions" = 1\n'
    )
    command: list[str | Path] = [LANNER, "pipeline", "run", "all", "--config", folder / "pipeline.toml"]
    subprocess.run(command, cwd=folder, check=True)
    (report,) = folder.rglob("report.html")
    page = browser.new_page(viewport={"width": 1120, "height": 866})
    page.goto(report.as_uri())
    page.screenshot(path=DOCS / "pipeline" / "report.png")
    print(DOCS / "pipeline" / "report.png")


TAKERS: Final = {"console": take_console, "report": take_report}


def main() -> None:
    """Take the pictures that are named on the command line, or all."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        for name in sys.argv[1:] or TAKERS:
            place = Path(folder) / name
            place.mkdir()
            TAKERS[name](browser, place)
        browser.close()


if __name__ == "__main__":
    main()
