"""Opens a page in headless Chromium, runs a script in it, and brings back what the script found. Not a test module."""

import json
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

# Markup in every way that a page, a template or a terminal might obey.
ATTACK = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>[/bold] & {{x}} \u2028 end"

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--virtual-time-budget=20000",
    "--dump-dom",
)  # fmt: skip
_PROBE = """
<pre id="probe"></pre>
<script>
window.problems = [];
// Charts are drawn when the browser draws a frame; without a window it does so only while something changes.
const ticking = setInterval(() => { document.getElementById("probe").textContent += "."; }, 50);
window.addEventListener("error", (event) => window.problems.push(String(event.message)));
window.addEventListener("unhandledrejection", (event) => window.problems.push(String(event.reason)));
document.addEventListener("securitypolicyviolation", (event) => window.problems.push("blocked " + event.blockedURI));
(async () => {
  const press = (key) => onKey({ key, target: document.body, preventDefault() {} });
  const count = (selector) => document.querySelectorAll(selector).length;
  const all = (selector) => [...document.querySelectorAll(selector)].map((found) => found.textContent);
  const read = (selector) => document.querySelector(selector).textContent;
  let found;
  try {
    await window.ready;
    found = await (async () => { SCRIPT })();
  } catch (error) {
    found = { error: String(error && error.stack || error) };
  }
  clearInterval(ticking);
  const said = JSON.stringify({ ...found, problems: window.problems });
  document.getElementById("probe").textContent = `found:${said}:end`;
})();
</script>
"""


def probe(page: Path, script: str, folder: Path, *, width: int = 1400, view: str = "charts") -> dict[str, Any]:
    """What ``script`` (the body of an async function) returns in ``page``; ``problems`` are the page's own errors.

    At hand for it: ``press(key)``, ``count(selector)``, ``read(selector)`` and ``all(selector)`` (texts).
    """
    copy = folder / f"probed-{view}-{width}.html"
    copy.write_text(page.read_text(encoding="utf-8") + _PROBE.replace("SCRIPT", script), encoding="utf-8")
    profile = folder / f"profile-{view}-{width}"
    profile.mkdir()
    place = (f"--user-data-dir={profile}", f"--window-size={width},900", f"{copy.as_uri()}#/{view}")
    done = subprocess.run([str(CHROMIUM), *QUIET, *place], capture_output=True, text=True, timeout=90, check=True)
    text = done.stdout.rpartition('<pre id="probe">found:')[2].partition(":end</pre>")[0]
    found = json.loads(unescape(text))
    assert "error" not in found, found["error"]
    return found
