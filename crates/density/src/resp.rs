//! The words of Redis's protocol that the load needs: SET and GET out, and what answers them in.
//!
//! Answers come in pieces of any length. The content of a value is counted and thrown away.

use std::io::Write;

/// What one request was answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A SET was carried out.
    Done,
    /// A GET found a value of so many bytes.
    Value(u64),
    /// A GET found nothing.
    Missing,
    /// The server refused, in its own words.
    Refused(String),
}

/// An answer that is not of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the server's answer '{0}' is not Redis's protocol")]
pub struct BadReply(String);

/// The longest line that can be an answer to what we ask.
const LINE_MAX: usize = 4096;

/// Appends a GET.
pub fn get(out: &mut Vec<u8>, key: u64) {
    let mut digits = [0; 20];
    let key = decimal(key, &mut digits);
    // Writing to a vector cannot fail.
    let _ = write!(out, "*2\r\n$3\r\nGET\r\n${}\r\n", key.len());
    out.extend_from_slice(key);
    out.extend_from_slice(b"\r\n");
}

/// Appends a SET of a value of `bytes`, which `fill` writes.
pub fn set(out: &mut Vec<u8>, key: u64, bytes: usize, fill: impl FnOnce(&mut [u8])) {
    let mut digits = [0; 20];
    let key = decimal(key, &mut digits);
    let _ = write!(out, "*3\r\n$3\r\nSET\r\n${}\r\n", key.len());
    out.extend_from_slice(key);
    let _ = write!(out, "\r\n${bytes}\r\n");
    let start = out.len();
    out.resize(start + bytes, 0);
    fill(&mut out[start..]);
    out.extend_from_slice(b"\r\n");
}

fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

/// Takes answers apart as they come in.
#[derive(Debug, Default)]
pub struct Parser {
    line: Vec<u8>,
    /// Bytes of a value, with its end mark, that are still to come, and the reply they belong to.
    rest: u64,
    value: u64,
}

impl Parser {
    /// Gives each whole answer in `bytes` to `each`.
    ///
    /// # Errors
    /// When something else than an answer comes; the connection is of no use then.
    pub fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Reply)) -> Result<(), BadReply> {
        while !bytes.is_empty() {
            if self.rest > 0 {
                let here = self.rest.min(bytes.len() as u64);
                bytes = &bytes[here as usize..];
                self.rest -= here;
                if self.rest == 0 {
                    each(Reply::Value(self.value));
                }
                continue;
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let here = end.map_or(bytes.len(), |at| at + 1);
            self.line.extend_from_slice(&bytes[..here]);
            bytes = &bytes[here..];
            if end.is_some() {
                if let Some(reply) = self.line()? {
                    each(reply);
                }
                self.line.clear();
            } else if self.line.len() > LINE_MAX {
                return Err(self.bad());
            }
        }
        Ok(())
    }

    /// A whole line: an answer, or the length of a value that follows.
    fn line(&mut self) -> Result<Option<Reply>, BadReply> {
        let Some(line) = self.line.strip_suffix(b"\r\n") else { return Err(self.bad()) };
        match line.split_first() {
            Some((b'+', _)) => Ok(Some(Reply::Done)),
            Some((b'-', words)) => Ok(Some(Reply::Refused(String::from_utf8_lossy(words).into_owned()))),
            Some((b'$', b"-1")) | Some((b'_', b"")) => Ok(Some(Reply::Missing)),
            Some((b'$', length)) => {
                let length = std::str::from_utf8(length).ok().and_then(|text| text.parse::<u32>().ok());
                let Some(length) = length else { return Err(self.bad()) };
                self.value = u64::from(length);
                self.rest = self.value + 2;
                Ok(None)
            }
            _ => Err(self.bad()),
        }
    }

    fn bad(&self) -> BadReply {
        let start = &self.line[..self.line.len().min(60)];
        BadReply(String::from_utf8_lossy(start).trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_are_arrays_of_strings() {
        let mut out = Vec::new();
        get(&mut out, 0);
        set(&mut out, 1234, 3, |value| value.copy_from_slice(b"a\r\n"));
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "*2\r\n$3\r\nGET\r\n$1\r\n0\r\n*3\r\n$3\r\nSET\r\n$4\r\n1234\r\n$3\r\na\r\n\r\n"
        );
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for text in ["hello\r\n", "$x\r\n", "$-5\r\n", "+OK\n", "\r\n", "*1\r\n"] {
            assert!(Parser::default().feed(text.as_bytes(), |_| {}).is_err(), "{text:?}");
        }
        let endless = vec![b'+'; 5000];
        assert!(Parser::default().feed(&endless, |_| {}).is_err());
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(cuts in prop::collection::vec(1usize..9, 1..40)) {
            let text = b"+OK\r\n$5\r\na\r\nbc\r\n$-1\r\n-OOM command not allowed\r\n$0\r\n\r\n+OK\r\n";
            let (mut parser, mut found, mut at) = (Parser::default(), Vec::new(), 0);
            for cut in cuts.iter().cycle() {
                let end = (at + cut).min(text.len());
                parser.feed(&text[at..end], |reply| found.push(reply)).unwrap();
                at = end;
                if at == text.len() { break }
            }
            prop_assert_eq!(found, vec![
                Reply::Done, Reply::Value(5), Reply::Missing,
                Reply::Refused("OOM command not allowed".to_owned()), Reply::Value(0), Reply::Done,
            ]);
        }

        #[test]
        fn nothing_that_comes_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Parser::default().feed(&bytes, |_| {});
        }
    }
}
