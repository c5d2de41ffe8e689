//! The lines of the panel: a pure function of figures and the size of the terminal.

use overdrive_base::time::{format_duration, format_ns, three_digits};
use std::time::Duration;

/// What is shown.
pub(super) struct View {
    pub(super) title: String,
    pub(super) elapsed: Duration,
    pub(super) left: Duration,
    /// How much of all is done, 0 to 1.
    pub(super) share: f64,
    /// All of it first, then its parts, if there are several.
    pub(super) rows: Vec<Row>,
    pub(super) response: bool,
    pub(super) simulated: bool,
    pub(super) failures: u64,
    /// Operations, CPU time and length of what "now" is.
    pub(super) ios: u64,
    pub(super) user_s: f64,
    pub(super) system_s: f64,
    pub(super) span_s: f64,
    /// Operations a second, one for each second.
    pub(super) past: Vec<f64>,
}

/// One direction of one target, or of all.
pub(super) struct Row {
    /// The target; empty for all.
    pub(super) label: String,
    pub(super) direction: &'static str,
    pub(super) iops: f64,
    pub(super) bytes_per_s: f64,
    /// The median, 99 %, 99.9 % and the largest.
    pub(super) latencies_ns: [Option<u64>; 4],
}

/// Lines besides those of the targets, and one that the cursor stands on.
const FRAME: usize = 6;
const FIGURES: usize = 7 + 8 + 4 * 9;

impl View {
    /// Lines no longer than `width` and no more than `height`.
    pub(super) fn lines(&self, width: usize, height: usize, blocks: bool) -> Vec<String> {
        let width = width.saturating_sub(1).max(20);
        let mut lines = vec![self.head(width), self.columns(width)];
        let room = height.saturating_sub(FRAME).max(1);
        let shown = if self.rows.len() > room { room - 1 } else { self.rows.len() };
        lines.extend(self.rows[..shown].iter().map(|row| row.line(width)));
        if shown < self.rows.len() {
            lines.push(format!("  and {} rows more", self.rows.len() - shown));
        }
        lines.push(self.cost());
        lines.extend(self.history(width, blocks));
        lines.iter().map(|line| line.chars().take(width).collect::<String>().trim_end().to_owned()).collect()
    }

    fn head(&self, width: usize) -> String {
        const BAR: usize = 12;
        let done = ((self.share.clamp(0.0, 1.0) * BAR as f64) as usize).min(BAR);
        let whole = |time: Duration| format_duration(Duration::from_secs(time.as_secs()));
        let end = format!(
            "{}{} {}, {} left",
            "=".repeat(done),
            " ".repeat(BAR - done),
            whole(self.elapsed),
            whole(self.left)
        );
        let room = width.saturating_sub(end.chars().count() + 2);
        let title: String = self.title.chars().take(room).collect();
        format!("{title:room$}  {end}")
    }

    fn columns(&self, width: usize) -> String {
        let kind = if self.response { "from when it was due" } else { "now" };
        let room = width.saturating_sub(FIGURES);
        format!("{kind:room$}{:>7}{:>8}{:>9}{:>9}{:>9}{:>9}", "IOPS", "GiB/s", "p50", "p99", "p99.9", "max")
    }

    /// What an operation costs, what failed, and what is not what it seems.
    fn cost(&self) -> String {
        let busy = self.user_s + self.system_s;
        let mut text = if self.simulated {
            "simulated: the device's time is not this one's, nor are the rates".to_owned()
        } else if self.ios == 0 {
            "no I/O came back within the last second".to_owned()
        } else {
            let us = |seconds: f64| format!("{:.2}", seconds / self.ios as f64 * 1e6);
            format!(
                "CPU {} us an I/O ({} user, {} system), {:.0} % of one CPU",
                us(busy),
                us(self.user_s),
                us(self.system_s),
                busy / self.span_s * 100.0
            )
        };
        if self.failures > 0 {
            text.push_str(&format!("; FAILED I/Os: {}", self.failures));
        }
        text
    }

    /// The rates of the last seconds, as long as they fit, the newest last.
    fn history(&self, width: usize, blocks: bool) -> Option<String> {
        const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let past = &self.past[self.past.len().saturating_sub(width.saturating_sub(40))..];
        if past.len() < 2 || self.simulated {
            return None;
        }
        let (low, high) =
            past.iter().fold((f64::MAX, 0.0_f64), |(low, high), &rate| (low.min(rate), high.max(rate)));
        let height = |rate: &f64| HEIGHTS[((rate / high.max(1.0) * 7.0).round() as usize).min(7)];
        let drawn: String = if blocks { past.iter().map(height).collect() } else { String::new() };
        let gap = if blocks { " " } else { "" };
        Some(format!("IOPS {drawn}{gap}{} to {} in {} s", count(low), count(high), past.len()))
    }
}

impl Row {
    fn line(&self, width: usize) -> String {
        let room = width.saturating_sub(FIGURES);
        let name = match self.label.as_str() {
            "" => self.direction.to_owned(),
            label => {
                // The end of a path says more than its beginning.
                let most = room.saturating_sub(self.direction.len() + 4);
                let length = label.chars().count();
                let cut: String = label.chars().skip(length.saturating_sub(most)).collect();
                format!("  {cut} {}", self.direction)
            }
        };
        let latency = |value: Option<u64>| value.map_or("-".to_owned(), format_ns);
        let mut text =
            format!("{name:room$}{:>7}{:>8.3}", count(self.iops), self.bytes_per_s / (1_u64 << 30) as f64);
        for value in self.latencies_ns {
            text.push_str(&format!("{:>9}", latency(value)));
        }
        text
    }
}

fn count(value: f64) -> String {
    match value {
        v if v < 999.5 => format!("{v:.0}"),
        v if v < 999.5e3 => format!("{} k", three_digits(v / 1e3)),
        v => format!("{} M", three_digits(v / 1e6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(label: &str, direction: &'static str) -> Row {
        Row {
            label: label.to_owned(),
            direction,
            iops: 175_321.0,
            bytes_per_s: 718_114_816.0,
            latencies_ns: [Some(180_223), Some(311_000), Some(511_999), Some(1_048_575)],
        }
    }

    fn view() -> View {
        View {
            title: "4 KiB randrw, 1x32, io_uring".to_owned(),
            elapsed: Duration::from_millis(12_300),
            left: Duration::from_millis(17_700),
            share: 0.41,
            rows: vec![row("", "read"), row("", "write")],
            response: false,
            simulated: false,
            failures: 0,
            ios: 175_321,
            user_s: 0.014,
            system_s: 0.42,
            span_s: 1.0,
            past: vec![100_000.0, 150_000.0, 175_000.0],
        }
    }

    #[test]
    fn all_of_it_fits_a_small_terminal() {
        let lines = view().lines(80, 24, true);
        assert_eq!(
            lines,
            [
                "4 KiB randrw, 1x32, io_uring                       ====         12 s, 17 s left",
                "now                            IOPS   GiB/s      p50      p99    p99.9      max",
                "read                          175 k   0.669   180 us   311 us   512 us  1.05 ms",
                "write                         175 k   0.669   180 us   311 us   512 us  1.05 ms",
                "CPU 2.48 us an I/O (0.08 user, 2.40 system), 43 % of one CPU",
                "IOPS ▅▇█ 100 k to 175 k in 3 s",
            ]
        );
    }

    #[test]
    fn no_line_is_wider_and_no_panel_higher_than_the_terminal() {
        let mut view = view();
        let path = format!("/dev/disk/by-id/nvme-{}", "x".repeat(200));
        view.rows.extend((0..50).map(|_| row(&path, "read")));
        view.past = vec![1.0; 120];
        for (width, height) in [(80, 24), (200, 24), (40, 10), (10, 3)] {
            for blocks in [true, false] {
                let lines = view.lines(width, height, blocks);
                assert!(lines.iter().all(|line| line.chars().count() < width.max(21)), "{width}: {lines:#?}");
                assert!(lines.len() <= height.max(6), "{height}: {lines:#?}");
            }
        }
        assert!(view.lines(100, 24, true).iter().any(|line| line.contains("rows more")));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let failing = View { failures: 3, ..view() }.lines(80, 24, true).join("\n");
        assert!(failing.contains("FAILED I/Os: 3"), "{failing}");
        let stalled = View { ios: 0, rows: Vec::new(), ..view() }.lines(80, 24, true).join("\n");
        assert!(stalled.contains("no I/O came back"), "{stalled}");
        let simulated = View { simulated: true, ..view() }.lines(80, 24, false).join("\n");
        assert!(simulated.contains("simulated") && !simulated.contains("CPU"), "{simulated}");
        let open = View { response: true, ..view() }.lines(80, 24, false).join("\n");
        assert!(open.contains("from when it was due") && open.contains("IOPS 100 k to 175 k"), "{open}");
    }
}
