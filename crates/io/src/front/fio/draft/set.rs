//! What each option that has a value does to a section under way. Most only read it: what it means with the
//! others is settled at the end.

use super::{Draft, ENGINES, Outcome, Process, Rw};
use crate::front::Extent;
use crate::front::fio::values;
use crate::job::words::{
    parse_advice, parse_bssplit, parse_buffer_pattern, parse_distribution, parse_steady_state, parse_sync,
};
use crate::job::{Access, SizeShare};
use std::time::Duration;

/// One method for each option that has a value.
impl Draft {
    pub(in crate::front::fio) fn set_filename(&mut self, text: &str) -> Outcome {
        // SPDK's plug-in has its own way to name a device, in which colons mean nothing.
        self.targets = if text.contains("traddr") { vec![text.to_owned()] } else { values::names(text) };
        if self.targets.is_empty() { Err(format!("'{text}' names nothing")) } else { Ok(()) }
    }

    pub(in crate::front::fio) fn set_directory(&mut self, text: &str) -> Outcome {
        self.directory = Some(text.to_owned());
        Ok(())
    }

    pub(in crate::front::fio) fn set_rw(&mut self, text: &str) -> Outcome {
        let (word, more) = text.split_once(':').unwrap_or((text, ""));
        let wanted = "wanted read, write, trim, randread, randwrite, randtrim, rw, readwrite or randrw";
        (self.spec.access, self.rw) = match word.trim() {
            "read" => (Access::Sequential, Rw::Read),
            "write" => (Access::Sequential, Rw::Write),
            "rw" | "readwrite" => (Access::Sequential, Rw::Mixed),
            "randread" => (Access::Random, Rw::Read),
            "randwrite" => (Access::Random, Rw::Write),
            "randrw" => (Access::Random, Rw::Mixed),
            "trim" => (Access::Sequential, Rw::Trim),
            "randtrim" => (Access::Random, Rw::Trim),
            "trimwrite" | "randtrimwrite" => {
                return Err(format!("'{text}' is not done here; {wanted}"));
            }
            _ => return Err(format!("'{text}' is no workload; {wanted}")),
        };
        if more.is_empty() {
            return Ok(());
        }
        if self.spec.access == Access::Random {
            return Err(format!("'{text}': a number of I/Os before each new offset is not done here"));
        }
        self.spec.stride = values::size(more, self.decimal)?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_mix(&mut self, text: &str, writes: bool) -> Outcome {
        let percent = values::number::<u8>(text, 0, 100)?;
        self.read_percent = if writes { 100 - percent } else { percent };
        Ok(())
    }

    pub(in crate::front::fio) fn set_bs(&mut self, text: &str) -> Outcome {
        self.block = values::by_direction(text, |part| values::size(part, self.decimal))?;
        self.spec.size_mix.clear();
        Ok(())
    }

    pub(in crate::front::fio) fn set_bsrange(&mut self, text: &str) -> Outcome {
        let wanted = || format!("'{text}' is not a range; wanted one such as 4k-16k");
        let (least, most) = text.split_once('-').ok_or_else(wanted)?;
        let (least, most) = (values::size(least, self.decimal)?, values::size(most, self.decimal)?);
        if least == 0 || least > most {
            return Err(wanted());
        }
        let count = most / least;
        if count > 100 {
            return Err(format!("'{text}' has {count} sizes; up to 100 are done here"));
        }
        let share = |index: u64| SizeShare {
            bytes: least * (index + 1),
            // What does not divide evenly goes to the first ones.
            percent: (100 / count + u64::from(index < 100 % count)) as u8,
        };
        self.spec.size_mix = if count > 1 { (0..count).map(share).collect() } else { Vec::new() };
        self.block = (Some(least), Some(least), Some(least));
        Ok(())
    }

    pub(in crate::front::fio) fn set_bssplit(&mut self, text: &str) -> Outcome {
        if text.contains(',') {
            return Err(format!("'{text}': one split for reads and another for writes is not done here"));
        }
        self.spec.size_mix = parse_bssplit(text, |size| values::size(size, self.decimal))
            .map_err(|error| error.to_string())?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_blockalign(&mut self, text: &str) -> Outcome {
        self.spec.block_align = Some(values::size(text, self.decimal)?);
        Ok(())
    }

    pub(in crate::front::fio) fn set_offset(&mut self, text: &str) -> Outcome {
        self.offset = values::extent(text, self.decimal)?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_offset_increment(&mut self, text: &str) -> Outcome {
        if text.contains('%') {
            return Err(format!("'{text}': a share of the target is not done here; wanted a size"));
        }
        self.spec.worker_offset = Some(values::size(text, self.decimal)?);
        Ok(())
    }

    pub(in crate::front::fio) fn set_size(&mut self, text: &str) -> Outcome {
        self.size = match values::extent(text, self.decimal)? {
            Extent::Bytes(0) => None,
            extent => Some(extent),
        };
        Ok(())
    }

    pub(in crate::front::fio) fn set_io_size(&mut self, text: &str) -> Outcome {
        self.spec.io_size = Some(values::size(text, self.decimal)?);
        Ok(())
    }

    pub(in crate::front::fio) fn set_number_ios(&mut self, text: &str) -> Outcome {
        self.spec.number_ios = Some(values::number(text, 1, u64::MAX)?);
        Ok(())
    }

    pub(in crate::front::fio) fn set_loops(&mut self, text: &str) -> Outcome {
        self.loops = values::number(text, 1, u32::MAX)?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_distribution(&mut self, text: &str) -> Outcome {
        self.spec.distribution = parse_distribution(text).map_err(|error| error.to_string())?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_numjobs(&mut self, text: &str) -> Outcome {
        self.spec.workers = values::number(text, 1, 1024)?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_iodepth(&mut self, text: &str) -> Outcome {
        self.spec.queue_depth = values::number(text, 1, 4096)?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_ioengine(&mut self, text: &str) -> Outcome {
        let last = |text: &str| text.rsplit(['/', ':']).next().unwrap_or("").to_owned();
        let word = if text.starts_with("external:") { last(text) } else { text.to_owned() };
        let word = if word.starts_with("spdk") { "spdk" } else { &word };
        let known = || ENGINES.iter().map(|engine| engine.asked).collect::<Vec<&str>>().join(", ");
        self.engine = *ENGINES
            .iter()
            .find(|engine| engine.asked == word)
            .ok_or_else(|| format!("'{text}' is not done here; wanted one of {}", known()))?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_runtime(&mut self, text: &str) -> Outcome {
        self.runtime = Some(values::time(text, "s")?).filter(|time| !time.is_zero());
        Ok(())
    }

    pub(in crate::front::fio) fn set_ramp_time(&mut self, text: &str) -> Outcome {
        self.spec.warmup = values::time(text, "s")?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_thinktime(&mut self, text: &str) -> Outcome {
        self.think_time = values::time(text, "us")?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_thinktime_blocks(&mut self, text: &str) -> Outcome {
        self.think_every = values::number(text, 1, u32::MAX)?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_rate(&mut self, text: &str) -> Outcome {
        self.rate = values::by_direction(text, |part| values::size(part, self.decimal))?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_rate_iops(&mut self, text: &str) -> Outcome {
        let rate = |part: &str| {
            let plain = part.trim().parse::<f64>().ok().filter(|rate| rate.is_finite());
            plain.map_or_else(|| values::size(part, self.decimal).map(|rate| rate as f64), Ok)
        };
        self.rate_iops = values::by_direction(text, rate)?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_rate_process(&mut self, text: &str) -> Outcome {
        let burst =
            || text.strip_prefix("burst:")?.parse().ok().filter(|&size| size > 0).map(Process::Bursts);
        self.process = match text {
            "linear" => Process::Linear,
            "poisson" => Process::Poisson,
            _ => burst().ok_or_else(|| format!("'{text}' is no law; wanted linear, poisson or burst:N"))?,
        };
        Ok(())
    }

    pub(in crate::front::fio) fn set_verify(&mut self, text: &str) -> Outcome {
        self.verified = match text {
            "0" => false,
            "crc32c" | "crc32c-intel" => true,
            // All of them find the same faults; which of them did is nobody's question.
            "crc7" | "crc16" | "crc32" | "crc64" | "md5" | "sha1" | "sha256" | "sha512" | "sha3-224"
            | "sha3-256" | "sha3-384" | "sha3-512" | "xxhash" | "meta" => {
                self.other_checksum = Some(text.to_owned());
                true
            }
            _ => return Err(format!("'{text}' is not done here; wanted crc32c or 0")),
        };
        Ok(())
    }

    pub(in crate::front::fio) fn set_percentage_random(&mut self, text: &str) -> Outcome {
        self.random_percent = values::by_direction(text, |part| values::number(part, 0, 100))?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_cpus(&mut self, text: &str) -> Outcome {
        self.cpus = values::cpus(text)?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_cpumask(&mut self, text: &str) -> Outcome {
        let hex = text.strip_prefix("0x");
        let mask = hex.map_or_else(|| text.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok());
        let mask = mask.filter(|&mask| mask != 0).ok_or_else(|| format!("'{text}' is not a mask of CPUs"))?;
        self.cpus = (0..64).filter(|cpu| mask >> cpu & 1 == 1).collect();
        Ok(())
    }

    pub(in crate::front::fio) fn set_percentiles(&mut self, text: &str) -> Outcome {
        self.percentiles = values::percentiles(text)?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_seed(&mut self, text: &str) -> Outcome {
        self.spec.seed = values::number(text, 0, u64::MAX)?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_kb_base(&mut self, text: &str) -> Outcome {
        self.decimal = match text {
            "1000" => true,
            "1024" => false,
            _ => return Err(format!("'{text}': wanted 1000 or 1024")),
        };
        Ok(())
    }

    pub(in crate::front::fio) fn set_outliers(&mut self, text: &str) -> Outcome {
        self.spec.outliers = values::number(text, 0, 100_000)?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_startdelay(&mut self, text: &str) -> Outcome {
        self.spec.start_delay = values::time(text, "s")?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_iodepth_batch(&mut self, text: &str) -> Outcome {
        self.spec.batch.submit = Some(values::number(text, 1, 4096)?);
        Ok(())
    }

    pub(in crate::front::fio) fn set_iodepth_batch_complete_min(&mut self, text: &str) -> Outcome {
        // In fio 0 means not to wait at all, which is to look for completions over and over.
        self.spec.batch.complete = Some(values::number(text, 0, 4096)?).filter(|&least: &u32| least > 0);
        Ok(())
    }

    pub(in crate::front::fio) fn set_iodepth_low(&mut self, text: &str) -> Outcome {
        self.spec.batch.low = Some(values::number(text, 0, 4096)?);
        Ok(())
    }

    pub(in crate::front::fio) fn set_buffer_pattern(&mut self, text: &str) -> Outcome {
        self.spec.content.pattern =
            Some(parse_buffer_pattern(text).map_err(|error| error.to_string())?.into());
        Ok(())
    }

    pub(in crate::front::fio) fn set_zero_buffers(&mut self, on: bool) {
        self.spec.content.pattern = on.then(|| [0].into());
    }

    pub(in crate::front::fio) fn set_buffer_compress_percentage(&mut self, text: &str) -> Outcome {
        self.spec.content.compress_percent = Some(values::number(text, 0, 100)?);
        Ok(())
    }

    pub(in crate::front::fio) fn set_buffer_compress_chunk(&mut self, text: &str) -> Outcome {
        let bytes = values::size(text, self.decimal)?;
        let bytes = u32::try_from(bytes).ok().filter(|&bytes| bytes > 0);
        self.spec.content.compress_chunk =
            Some(bytes.ok_or_else(|| format!("'{text}': wanted 1 byte to 4g"))?);
        Ok(())
    }

    pub(in crate::front::fio) fn set_fsync(&mut self, text: &str) -> Outcome {
        self.spec.fsync_every = Some(values::number(text, 0, u32::MAX)?).filter(|&every| every > 0);
        Ok(())
    }

    pub(in crate::front::fio) fn set_fdatasync(&mut self, text: &str) -> Outcome {
        self.spec.fdatasync_every = Some(values::number(text, 0, u32::MAX)?).filter(|&every| every > 0);
        Ok(())
    }

    pub(in crate::front::fio) fn set_sync(&mut self, text: &str) -> Outcome {
        self.spec.sync = parse_sync(text).map_err(|error| error.to_string())?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_fadvise_hint(&mut self, text: &str) -> Outcome {
        self.spec.page_cache.advice = parse_advice(text).map_err(|error| error.to_string())?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_write_bw_log(&mut self, text: &str) {
        self.logs.bandwidth = Some(text.to_owned());
    }

    pub(in crate::front::fio) fn set_write_iops_log(&mut self, text: &str) {
        self.logs.iops = Some(text.to_owned());
    }

    pub(in crate::front::fio) fn set_write_lat_log(&mut self, text: &str) {
        self.logs.latency = Some(text.to_owned());
    }

    pub(in crate::front::fio) fn set_write_hist_log(&mut self, text: &str) {
        self.logs.histogram = Some(text.to_owned());
    }

    pub(in crate::front::fio) fn set_log_hist_msec(&mut self, text: &str) -> Outcome {
        let window = values::number(text, 0, 3_600_000)?;
        self.logs.histogram_window = Some(Duration::from_millis(window)).filter(|window| !window.is_zero());
        Ok(())
    }

    pub(in crate::front::fio) fn set_log_avg_msec(&mut self, text: &str) -> Outcome {
        let window = values::number(text, 0, 3_600_000)?;
        self.logs.window = Some(Duration::from_millis(window)).filter(|window| !window.is_zero());
        Ok(())
    }

    pub(in crate::front::fio) fn set_latency_target(&mut self, text: &str) -> Outcome {
        self.latency_limit = Some(values::time(text, "us")?).filter(|limit| !limit.is_zero());
        Ok(())
    }

    pub(in crate::front::fio) fn set_latency_window(&mut self, text: &str) -> Outcome {
        self.latency_window = values::time(text, "us")?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_latency_percentile(&mut self, text: &str) -> Outcome {
        let percentile = text.parse::<f64>().ok().filter(|percentile| (0.0..=100.0).contains(percentile));
        self.latency_percentile =
            percentile.ok_or_else(|| format!("'{text}' is not a percentile; wanted 0 to 100"))?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_steadystate(&mut self, text: &str) -> Outcome {
        self.steady = Some(parse_steady_state(text).map_err(|error| error.to_string())?);
        Ok(())
    }

    pub(in crate::front::fio) fn set_steadystate_duration(&mut self, text: &str) -> Outcome {
        self.steady_duration = values::time(text, "s")?;
        Ok(())
    }

    pub(in crate::front::fio) fn set_steadystate_ramp_time(&mut self, text: &str) -> Outcome {
        self.steady_ramp = values::time(text, "s")?;
        Ok(())
    }
}
