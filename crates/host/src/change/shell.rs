//! A plan as a shell script, for those who want to read and run it themselves.

use super::{Change, Kind, meaning, side_effects, swap};
use crate::root::Root;
use overdrive_sys::swap::Discard;
use overdrive_sys::swap::space::FirstPage;

/// A script: `sh FILE apply` makes the changes, `sh FILE undo` takes them back, with what the kernel moves
/// along as `root` has it now. It keeps no journal and looks for no drift. Its head names the command that
/// planned it and the one that makes the changes with a journal.
#[must_use]
pub fn script(root: &Root, changes: &[Change], planned_by: &str, made_by: &str) -> String {
    let mut text = format!(
        "#!/bin/sh\n# Made by overdrive {planned_by} --shell.\n\
         # Run as root: 'sh FILE apply', later 'sh FILE undo'.\n\
         # It keeps no journal and overwrites what others changed since; overdrive {made_by} does not.\n\
         apply() {{\n",
    );
    for change in changes {
        text += &format!("    # {}, class {}\n", change.rule, change.class);
        text += &line(change, change.new.as_deref());
    }
    text += "    :\n}\nundo() {\n";
    for change in changes.iter().rev() {
        text += &back(root, change);
    }
    text += "    :\n}\ncase \"$1\" in\napply) apply ;;\nundo) undo ;;\n\
             *) echo \"usage: sh $0 apply|undo\" >&2; exit 2 ;;\nesac\n";
    text
}

/// What takes a change back: what stood there, then what its change and its undo moved along.
fn back(root: &Root, change: &Change) -> String {
    let moved = |path: String| {
        let now = root.text(&path).value()?.clone();
        Some((path, now))
    };
    let moved: Vec<(String, String)> = match change.kind {
        Kind::Attribute => side_effects(&change.path).into_iter().filter_map(moved).collect(),
        _ => Vec::new(),
    };
    // Of each pair of limits one is in force, and the other reads 0, which may not be written to it.
    let is_out = |path: &str, text: &str| path.starts_with("/proc/sys/vm/dirty_") && meaning(text) == "0";
    let mut text = String::new();
    if !is_out(&change.path, change.old.as_deref().unwrap_or_default()) {
        text += &line(change, change.old.as_deref());
    }
    for (path, old) in moved.iter().filter(|(path, old)| !is_out(path, old)) {
        text += &format!("    echo {} > {}\n", quoted(meaning(old)), quoted(path));
    }
    text
}

fn line(change: &Change, value: Option<&str>) -> String {
    let path = quoted(&change.path);
    match (change.kind, value) {
        (Kind::Attribute, Some(value)) => format!("    echo {} > {path}\n", quoted(meaning(value))),
        (Kind::File, Some(value)) => {
            let folder = change.path.rsplit_once('/').map_or("/", |(folder, _)| folder);
            format!("    mkdir -p {} && printf %s {} > {path}\n", quoted(folder), quoted(value))
        }
        (Kind::SwapSpace, Some("zeros")) => format!("    dd if=/dev/zero of={path} bs=4096 count=1\n"),
        (Kind::SwapSpace, Some(text)) => make_space(&path, change, text),
        (Kind::SwapArea, Some(text)) => {
            let manner = swap::manner_of(text).unwrap_or_default();
            let priority = manner.priority.map_or_else(String::new, |priority| format!("-p {priority} "));
            let discard = match manner.discard {
                Discard::Never => "",
                Discard::Once => "-d=once ",
                Discard::Freed => "-d=pages ",
            };
            format!("    swapon {priority}{discard}{path}\n")
        }
        (Kind::SwapArea, None) => format!("    swapoff {path}\n"),
        (_, None) => format!("    rm -f {path}\n"),
    }
}

/// A new file has to be made first; a device is there.
fn make_space(path: &str, change: &Change, text: &str) -> String {
    match swap::page_of(text) {
        Some(FirstPage::Ours(space)) if change.old.is_none() => {
            let size = space.bytes;
            format!("    fallocate -l {size} {path} && chmod 600 {path} && mkswap -L overdrive {path}\n")
        }
        Some(FirstPage::Ours(_)) => format!("    mkswap -L overdrive {path}\n"),
        _ => format!("    # {path}: what its first page held is not put back by this script\n"),
    }
}

/// One word of the shell, whatever is in it.
#[must_use]
pub fn quoted(text: &str) -> String {
    let is_plain =
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+:,=@%".contains(c));
    if is_plain { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> Root {
        Root::from_capture("").unwrap()
    }

    #[test]
    fn undo_brings_back_what_moved_along_and_only_the_limit_in_force() {
        let root = Root::from_capture(
            "/sys/block/sda/queue/nr_requests = 256\n/sys/block/sda/queue/wbt_lat_usec = 2000\n\
             /proc/sys/vm/dirty_ratio = 20\n",
        )
        .unwrap();
        let change = |kind, path: &str, old: Option<&str>| Change {
            rule: "a-rule".to_owned(),
            class: "A".to_owned(),
            kind,
            path: path.to_owned(),
            old: old.map(str::to_owned),
            new: Some("1".to_owned()),
            device: None,
        };
        let text = script(
            &root,
            &[
                change(Kind::Attribute, "/sys/block/sda/queue/scheduler", Some("none [mq-deadline]\n")),
                change(Kind::Attribute, "/proc/sys/vm/dirty_bytes", Some("0\n")),
                change(Kind::File, "/etc/systemd/system/multi-user.target.d/overdrive-0001.conf", None),
            ],
            "tune plan",
            "tune apply",
        );
        let (apply, undo) = text.split_once("undo() {").unwrap();
        assert!(apply.contains("mkdir -p /etc/systemd/system/multi-user.target.d && printf"), "{apply}");
        assert!(
            !undo.contains("> /proc/sys/vm/dirty_bytes")
                && undo.contains("echo 20 > /proc/sys/vm/dirty_ratio")
        );
        let at = |line: &str| undo.find(line).unwrap_or_else(|| panic!("{line}: {undo}"));
        assert!(at("echo mq-deadline > ") < at("echo 256 > /sys/block/sda/queue/nr_requests"));
        at("echo 2000 > /sys/block/sda/queue/wbt_lat_usec");
    }

    #[test]
    fn words_survive_the_shell() {
        assert_eq!(quoted("/sys/a"), "/sys/a");
        assert_eq!(quoted("it's; rm -rf /"), "'it'\\''s; rm -rf /'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn swap_is_made_and_taken_away_in_the_tools_words() {
        let change = |kind, path: &str, old: Option<&str>, new: String| Change {
            rule: "swap-area".to_owned(),
            class: "B".to_owned(),
            kind,
            path: path.to_owned(),
            old: old.map(str::to_owned),
            new: Some(new),
            device: None,
        };
        let space = |bytes: u64| format!("swap {bytes} {}", "ab".repeat(16));
        let text = script(
            &nothing(),
            &[
                change(Kind::SwapSpace, "/dev/nvme0n1", Some("zeros"), space(1 << 30)),
                change(Kind::SwapArea, "/dev/nvme0n1", None, "priority 10 discard-once".to_owned()),
                change(Kind::SwapSpace, "/var/swap", None, space(1 << 20)),
                change(Kind::SwapArea, "/var/swap", None, "priority auto discard-freed".to_owned()),
            ],
            "swap plan",
            "swap on",
        );
        for line in [
            "mkswap -L overdrive /dev/nvme0n1",
            "swapon -p 10 -d=once /dev/nvme0n1",
            "fallocate -l 1048576 /var/swap && chmod 600 /var/swap && mkswap -L overdrive /var/swap",
            "swapon -d=pages /var/swap",
            "rm -f /var/swap",
            "swapoff /dev/nvme0n1",
            "dd if=/dev/zero of=/dev/nvme0n1 bs=4096 count=1",
        ] {
            assert!(text.contains(&format!("    {line}\n")), "{line}: {text}");
        }
    }

    #[test]
    fn undo_runs_backwards_and_writes_what_was_chosen() {
        let change = |path: &str, old: &str, new: &str| Change {
            rule: "a-rule".to_owned(),
            class: "A".to_owned(),
            kind: Kind::Attribute,
            path: path.to_owned(),
            old: Some(old.to_owned()),
            new: Some(new.to_owned()),
            device: None,
        };
        let changes = [change("/sys/a", "x [y]\n", "x"), change("/sys/b", "1\n", "2")];
        let text = script(&nothing(), &changes, "tune plan", "tune apply");
        let undo = text.split("undo() {").nth(1).unwrap();
        assert!(undo.find("echo 1 > /sys/b").unwrap() < undo.find("echo y > /sys/a").unwrap(), "{text}");
    }
}
