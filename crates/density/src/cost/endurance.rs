//! How long a drive lasts under what is written to it, against its maker's rating.
//!
//! The rating is either the bytes that may be written in all, or drive writes a day over the years of the
//! warranty; both say the same. Writes are taken as even over the year. What the drive's own housekeeping
//! adds is inside the rating, which is stated for host writes.

use super::CostError;

const SECONDS_PER_DAY: f64 = 86_400.0;
const DAYS_PER_YEAR: f64 = 365.25;

/// The blueprint expects of a drive used as swap "five or more" years.
pub const CLAIMED_YEARS: f64 = 5.0;

/// What the maker promises of all drives together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rating {
    /// Bytes that may be written in all.
    pub bytes: f64,
}

impl Rating {
    /// So many drives of this rating together.
    ///
    /// # Errors
    /// When there is none, or nothing may be written.
    pub fn of_bytes(bytes: f64, drives: u32) -> Result<Self, CostError> {
        if !(bytes > 0.0 && bytes.is_finite()) {
            return Err(CostError::new("endurance rating in bytes", bytes, "more than 0"));
        }
        if drives == 0 {
            return Err(CostError::new("drives", 0.0, "at least 1"));
        }
        Ok(Self { bytes: bytes * f64::from(drives) })
    }

    /// The same from drive writes a day over the years of the warranty.
    ///
    /// # Errors
    /// When one of them is not a positive number.
    pub fn of_drive_writes(
        per_day: f64,
        capacity_bytes: f64,
        warranty_years: f64,
        drives: u32,
    ) -> Result<Self, CostError> {
        for (name, value) in [
            ("drive writes per day", per_day),
            ("capacity of the drive in bytes", capacity_bytes),
            ("years of warranty", warranty_years),
        ] {
            if !(value > 0.0 && value.is_finite()) {
                return Err(CostError::new(name, value, "more than 0"));
            }
        }
        Self::of_bytes(per_day * capacity_bytes * warranty_years * DAYS_PER_YEAR, drives)
    }

    /// Years until the rating is used up, when so many bytes are written a day; infinite when none are.
    #[must_use]
    pub fn years(&self, bytes_per_day: f64) -> f64 {
        self.bytes / bytes_per_day / DAYS_PER_YEAR
    }

    /// The highest mean rate, in bytes a second, that leaves it alive for so many years.
    #[must_use]
    pub fn bytes_per_s_for(&self, years: f64) -> f64 {
        self.bytes / (years * DAYS_PER_YEAR * SECONDS_PER_DAY)
    }
}

/// A rate in bytes a second as bytes a day.
#[must_use]
pub fn per_day(bytes_per_s: f64) -> f64 {
    bytes_per_s * SECONDS_PER_DAY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_drive_writes_a_day_are_the_published_petabytes() {
        // A 375 GB drive with 30 drive writes a day for five years is published as 20.5 PB.
        let rating = Rating::of_drive_writes(30.0, 375e9, 5.0, 1).unwrap();
        assert!((rating.bytes / 20.5e15 - 1.0).abs() < 0.005, "{rating:?}");
        assert!((rating.years(30.0 * 375e9) - 5.0).abs() < 1e-9);
        assert!((rating.bytes_per_s_for(5.0) / 130.2e6 - 1.0).abs() < 0.001);
    }

    #[test]
    fn the_claim_of_five_years_depends_on_the_rate() {
        // The blueprint's own rate at one thread, uniform writes, half in memory: about 105 k pages a second,
        // every second of them a page written.
        let rating = Rating::of_drive_writes(30.0, 375e9, 5.0, 1).unwrap();
        let years = rating.years(per_day(105_166.0 / 2.0 * 4096.0));
        assert!((2.9..3.2).contains(&years), "{years}");
        assert!(rating.years(per_day(10e6)) > CLAIMED_YEARS);
        assert_eq!(rating.years(0.0), f64::INFINITY);
    }

    #[test]
    fn two_drives_last_twice_as_long() {
        let one = Rating::of_bytes(1e15, 1).unwrap();
        let two = Rating::of_bytes(1e15, 2).unwrap();
        assert!((two.years(1e12) / one.years(1e12) - 2.0).abs() < 1e-12);
        assert!(Rating::of_bytes(0.0, 1).is_err() && Rating::of_bytes(1.0, 0).is_err());
        assert!(Rating::of_drive_writes(-1.0, 1.0, 1.0, 1).is_err());
    }
}
