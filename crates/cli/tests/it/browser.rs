//! The HTML reports in a real browser with the network off: no console message, every chart drawn, no label cut
//! off, nothing wider than the page, at 1280 and at 400 pixels, in light and in dark.

use crate::support::{folder, run, skip};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs inside the page and tells the page around it what a reader would see.
const PROBE: &str = r#"<script>
addEventListener("load", () => {
  const visible = [...document.querySelectorAll("svg")].filter(svg => svg.getBoundingClientRect().width > 0);
  const charts = visible.map(svg => {
    const frame = svg.getBoundingClientRect();
    const drawn = [...svg.querySelectorAll("path, polyline, polygon, rect, circle")]
      .filter(shape => { const box = shape.getBBox(); return box.width > 0 && box.height > 0; }).length;
    const cut = [...svg.querySelectorAll("text")].filter(text => {
      const box = text.getBoundingClientRect();
      return box.height > 0 && (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1);
    }).map(text => text.textContent);
    const heights = [...svg.querySelectorAll("text")].map(text => text.getBoundingClientRect().height);
    const smallest = Math.min(...heights.filter(height => height > 0));
    return { drawn, cut, smallest, height: frame.height };
  });
  const background = getComputedStyle(document.body).backgroundColor.match(/\d+/g).slice(0, 3).map(Number);
  parent.postMessage(JSON.stringify({
    width: innerWidth, scroll: document.documentElement.scrollWidth, charts, background,
    text: document.body.innerText.length }), "*");
});
</script>"#;

/// Shows the report in a frame of the wanted width (a window will not go below 500) and keeps what it tells.
fn frame(width: u32) -> String {
    format!(
        r#"<!doctype html><body style="margin:0"><pre id="seen"></pre><script>
addEventListener("message", event => {{ document.getElementById("seen").textContent = event.data; }});
</script><iframe src="report.html" style="width:{width}px;height:4000px;border:0"></iframe></body>"#
    )
}

pub(crate) fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|file| file.is_file())
}

fn look(browser: &Path, folder: &Path, width: u32, dark: bool) -> (Value, String) {
    std::fs::write(folder.join("frame.html"), frame(width)).unwrap();
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
        ])
        .args(["--disable-component-update", "--disable-sync", "--enable-logging=stderr", "--dump-dom"])
        .args(["--proxy-server=127.0.0.1:9", "--virtual-time-budget=5000"])
        .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)))
        .arg(format!("--window-size={},4000", width.max(500)))
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("file://{}", folder.join("frame.html").display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let seen = dom
        .split("<pre id=\"seen\">")
        .nth(1)
        .and_then(|rest| rest.split("</pre>").next())
        .unwrap_or_default();
    let errors = String::from_utf8_lossy(&output.stderr);
    let console: Vec<&str> = errors.lines().filter(|line| line.contains("CONSOLE")).collect();
    (
        serde_json::from_str(seen).unwrap_or_else(|_| panic!("the page told nothing: {dom}\n{errors}")),
        console.join("\n"),
    )
}

/// What a page must hold to be whole.
struct Least {
    charts: usize,
    letters: u64,
}

/// Opens the page at two widths, in light and in dark.
fn is_whole(browser: &Path, folder: &Path, page: &str, least: &Least) {
    std::fs::write(folder.join("report.html"), page.replace("</body>", &format!("{PROBE}</body>"))).unwrap();
    for (width, dark) in [(1280, false), (1280, true), (400, false), (400, true)] {
        let (seen, console) = look(browser, folder, width, dark);
        let place = format!("{width} px, {}", if dark { "dark" } else { "light" });
        assert_eq!(console, "", "{place}: the console is silent");
        assert_eq!(seen["width"], width, "{place}");
        assert!(
            seen["scroll"].as_u64().unwrap() <= u64::from(width),
            "{place}: the page scrolls sideways: {seen}"
        );
        assert!(seen["text"].as_u64().unwrap() > least.letters, "{place}: {seen}");
        let light: u64 =
            seen["background"].as_array().unwrap().iter().map(|part| part.as_u64().unwrap()).sum();
        assert_eq!(light < 384, dark, "{place}: background {}", seen["background"]);
        let charts = seen["charts"].as_array().unwrap();
        assert!(charts.len() >= least.charts, "{place}: {} charts", charts.len());
        for chart in charts {
            assert!(chart["drawn"].as_u64().unwrap() >= 1, "{place}: an empty chart: {chart}");
            assert_eq!(chart["cut"].as_array().unwrap().len(), 0, "{place}: labels cut off: {chart}");
            assert!(chart["smallest"].as_f64().unwrap() >= 9.0, "{place}: unreadably small labels: {chart}");
        }
    }
}

#[test]
fn the_report_is_whole_in_a_browser() {
    let Some(browser) = browser() else {
        return skip("the_report_is_whole_in_a_browser", "chromium is not installed");
    };
    let folder = folder();
    let out = folder.path().join("out");
    let (code, _, error) = run(&["evaluate", "sim", "--quick", "--out", out.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    let html = std::fs::read_to_string(out.join("report.html")).unwrap();
    is_whole(&browser, folder.path(), &html, &Least { charts: 5, letters: 5000 });

    // The same record on a host with ten drives: the drawing of its topology.
    let tree = format!("{}/../../fixtures/hosts/workstation-ten-ssds.tree", env!("CARGO_MANIFEST_DIR"));
    let (code, text, error) = run(&["topology", "--json", "--from-capture", &tree]);
    assert_eq!(code, 0, "{error}");
    let mut topology: Value = serde_json::from_str(&text).unwrap();
    topology.as_object_mut().unwrap().remove("schema");
    let stored = std::fs::read_to_string(out.join("record.json")).unwrap();
    let mut record: Value = serde_json::from_str(&stored).unwrap();
    record["topology"] = topology;
    let (stored, page) = (folder.path().join("record.json"), folder.path().join("drawn.html"));
    std::fs::write(&stored, record.to_string()).unwrap();
    let (code, _, error) = run(&["report", stored.to_str().unwrap(), "--html", page.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    let html = std::fs::read_to_string(&page).unwrap();
    assert_eq!(html.matches("<svg class=\"topology\"").count(), 1);
    is_whole(&browser, folder.path(), &html, &Least { charts: 6, letters: 5000 });
}

#[test]
fn a_paging_report_is_whole_in_a_browser() {
    let Some(browser) = browser() else {
        return skip("a_paging_report_is_whole_in_a_browser", "chromium is not installed");
    };
    let folder = folder();
    let (out, swap) = (folder.path().join("out"), format!("{}:96MiB", folder.path().display()));
    let page = |backing: &[&str]| {
        let cells = ["page", "--set", "32MiB", "--threads", "1,2", "--read-ratio", "0,100"];
        let short = ["--runtime", "200ms", "--warmup-max", "200ms", "--out", out.to_str().unwrap()];
        run(&[&cells[..], &short, backing].concat())
    };
    // Swap wants root; without it the page shows memory alone.
    let (mut code, _, mut error) = page(&["--backing", "dram,swap", "--dram", "16MiB", "--swap", &swap]);
    if code == 2 {
        (code, _, error) = page(&["--backing", "dram"]);
    }
    assert_eq!(code, 0, "{error}");
    let html = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(html.contains("id=\"paging\""));
    is_whole(&browser, folder.path(), &html, &Least { charts: 2, letters: 1000 });
}

#[test]
fn the_page_of_a_density_run_is_whole_in_a_browser() {
    const TEST: &str = "browser::the_page_of_a_density_run_is_whole_in_a_browser";
    let Some(browser) = browser() else { return skip(TEST, "chromium is not installed") };
    if Command::new("redis-server").arg("--version").output().is_err() {
        return skip(TEST, "no redis-server");
    }
    let folder = folder();
    let out = folder.path().join("out");
    let load = ["--records", "500", "--rate", "200", "--runtime", "200ms", "--iterations", "2", "--max", "2"];
    let words = ["density", "--objective", "avg=50us,p99=60s,max=60s", "--out", out.to_str().unwrap()];
    let (code, _, error) = run(&[&words[..], &load].concat());
    assert!(matches!(code, 0 | 1), "{error}");
    let html = std::fs::read_to_string(out.join("density.html")).unwrap();
    is_whole(&browser, folder.path(), &html, &Least { charts: 5, letters: 500 });
}
