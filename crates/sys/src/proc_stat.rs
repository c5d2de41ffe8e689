//! What stands in /proc/PID/stat and in that of each thread.

/// A field from the third on, counted behind the command's name, which may hold anything but its last `)`.
pub(crate) fn field(stat: &str, number: usize) -> Option<&str> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(number.checked_sub(3)?)
}
