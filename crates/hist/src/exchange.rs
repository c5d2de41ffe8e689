//! The histogram in the HdrHistogram V2 format, base64, as the record stores it and other tools read it.
//!
//! Each of our buckets is written as its middle value, except for one count of the smallest and one of the
//! largest value, which go along as they are. At three significant digits HdrHistogram's own buckets are
//! eight times finer than ours and nest inside them, so a round trip lands every count in the bucket it came
//! from, and minimum and maximum come back at most 0.1 % larger.

use crate::{Bucket, Histogram};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram as Hdr;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use thiserror::Error;

/// A text that does not hold an HdrHistogram V2 payload.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("not an HdrHistogram V2 payload in base64: {0}")]
pub struct DecodeError(String);

impl Histogram {
    /// The histogram as base64 of a deflated HdrHistogram V2 payload, values in nanoseconds.
    #[must_use]
    pub fn encode_v2_base64(&self) -> String {
        let mut bytes = Vec::new();
        let written =
            self.to_hdr().and_then(|hdr| V2DeflateSerializer::new().serialize(&hdr, &mut bytes).ok());
        debug_assert!(written.is_some(), "a histogram of u64 nanoseconds always fits the format");
        STANDARD.encode(&bytes)
    }

    /// Reads what [`Histogram::encode_v2_base64`] wrote, or any HdrHistogram V2 payload of nanoseconds.
    ///
    /// # Errors
    /// When the text is not base64 or its payload is damaged.
    pub fn decode_v2_base64(text: &str) -> Result<Self, DecodeError> {
        let bytes = STANDARD.decode(text.trim()).map_err(|error| DecodeError(error.to_string()))?;
        let hdr: Hdr<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| DecodeError(format!("{error:?}")))?;
        let mut histogram = Self::new();
        for value in hdr.iter_recorded() {
            histogram.record_n(value.value_iterated_to(), value.count_since_last_iteration());
        }
        Ok(histogram)
    }

    fn to_hdr(&self) -> Option<Hdr<u64>> {
        let highest = self.max().unwrap_or(1).clamp(2, 1 << 62);
        let mut hdr = Hdr::new_with_bounds(1, highest, 3).ok()?;
        for bucket in self.buckets() {
            // The format's counts are signed. No run reaches them, but a forged text may.
            let mut left = bucket.count.min(i64::MAX as u64);
            for extreme in [self.max, self.min] {
                if left > 0 && (bucket.low..=bucket.high).contains(&extreme) {
                    hdr.record(extreme.min(highest)).ok()?;
                    left -= 1;
                }
            }
            hdr.record_n(self.representative(bucket).min(highest), left).ok()?;
        }
        Some(hdr)
    }

    /// The middle of a bucket, kept inside what was really recorded.
    fn representative(&self, bucket: Bucket) -> u64 {
        (bucket.low + (bucket.high - bucket.low) / 2).clamp(self.min, self.max)
    }
}
