//! The words of swap in plans and journals: what a first page holds, and how an area is on.
//!
//! - A space reads `zeros`, `swap BYTES UUID` for one of ours, or `page HEX` for anything else, so that the
//!   first page of a device can be put back to the byte; no text: no such file.
//! - An area reads `priority N` or `priority auto`, wanted with ` discard-once` or ` discard-freed` behind it
//!   or neither; no text: off.
//!
//! Here are words only. The calls stand in `overdrive_sys::swap`.

use super::Kind;
use overdrive_sys::swap::space::{FirstPage, Space};
use overdrive_sys::swap::{Discard, Manner};

/// How an area's words end.
const DISCARDS: [(&str, Discard); 2] = [(" discard-once", Discard::Once), (" discard-freed", Discard::Freed)];

/// A first page in words.
#[must_use]
pub fn page_text(page: &FirstPage) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match page {
        FirstPage::Zeros => "zeros".to_owned(),
        FirstPage::Ours(space) => format!("swap {} {}", space.bytes, hex(&space.uuid)),
        FirstPage::Other(bytes) => format!("page {}", hex(bytes)),
    }
}

/// The first page that these words stand for.
#[must_use]
pub fn page_of(text: &str) -> Option<FirstPage> {
    if text == "zeros" {
        return Some(FirstPage::Zeros);
    }
    if let Some(rest) = text.strip_prefix("page ") {
        return bytes(rest).map(FirstPage::Other);
    }
    let (size, uuid) = text.strip_prefix("swap ")?.split_once(' ')?;
    let uuid = bytes(uuid)?.try_into().ok()?;
    Some(FirstPage::Ours(Space { bytes: size.parse().ok()?, uuid }))
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// An area in words: the kernel counts what it chose itself downwards from -1, and anew when others go.
#[must_use]
pub fn area_text(priority: i64) -> String {
    if priority < 0 { "priority auto".to_owned() } else { format!("priority {priority}") }
}

/// How an area is to be turned on, in words.
#[must_use]
pub fn manner_text(manner: Manner) -> String {
    let text = area_text(manner.priority.map_or(-1, i64::from));
    let end = DISCARDS.iter().find(|(_, discard)| *discard == manner.discard).map_or("", |(end, _)| end);
    text + end
}

/// The manner that these words stand for.
#[must_use]
pub fn manner_of(text: &str) -> Option<Manner> {
    let (area, discard) = split_discard(text);
    let priority = match area.strip_prefix("priority ")? {
        "auto" => None,
        number => Some(number.parse().ok()?),
    };
    Some(Manner { priority, discard })
}

fn split_discard(text: &str) -> (&str, Discard) {
    let split = |&(end, discard)| Some((text.strip_suffix(end)?, discard));
    DISCARDS.iter().find_map(split).unwrap_or((text, Discard::Never))
}

/// Whether two areas are on alike; the kernel does not tell what was discarded.
pub(super) fn same_area(a: &str, b: &str) -> bool {
    split_discard(a).0 == split_discard(b).0
}

/// The words of a space or area for people.
#[must_use]
pub fn told(kind: Kind, text: Option<&str>) -> String {
    use overdrive_base::size::format_size;
    match (kind, text) {
        (Kind::SwapArea, None) => "off".to_owned(),
        (Kind::SwapArea, Some(manner)) => format!("on, {manner}"),
        (_, None) => "(nothing)".to_owned(),
        (_, Some(text)) => match page_of(text) {
            Some(FirstPage::Zeros) => "an empty first page".to_owned(),
            Some(FirstPage::Ours(space)) => format!("swap space of {}", format_size(space.bytes)),
            Some(FirstPage::Other(_)) => "a first page with something in it".to_owned(),
            None => text.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_is_read_back() {
        let space = Space { bytes: 1 << 30, uuid: [0xab; 16] };
        for page in [FirstPage::Zeros, FirstPage::Ours(space), FirstPage::Other((0..=255).collect())] {
            assert_eq!(page_of(&page_text(&page)), Some(page));
        }
        for text in ["", "swap", "swap 1 2", "swap x ab", "page 0g", "page €", "zeros "] {
            assert_eq!(page_of(text), None, "{text}");
        }
        for priority in [None, Some(0), Some(10)] {
            for discard in [Discard::Never, Discard::Once, Discard::Freed] {
                let manner = Manner { priority, discard };
                assert_eq!(manner_of(&manner_text(manner)), Some(manner));
            }
        }
        for text in ["priority", "priority -1", "priority 99999", "auto"] {
            assert_eq!(manner_of(text), None, "{text}");
        }
    }

    #[test]
    fn an_area_is_known_by_its_priority() {
        assert!(same_area("priority 10", "priority 10 discard-once"));
        assert!(same_area("priority 10 discard-freed", "priority 10"));
        assert!(same_area(&area_text(-3), &area_text(-2)));
        assert!(!same_area("priority auto", &area_text(0)));
        assert_eq!(told(Kind::SwapArea, Some("priority 10")), "on, priority 10");
        assert_eq!(told(Kind::SwapArea, None), "off");
        assert_eq!(
            told(Kind::SwapSpace, Some("swap 1048576 ab")),
            "swap 1048576 ab",
            "words that are damaged"
        );
        let space = page_text(&FirstPage::Ours(Space { bytes: 1 << 20, uuid: [0; 16] }));
        assert_eq!(told(Kind::SwapSpace, Some(&space)), "swap space of 1 MiB");
    }
}
