//! The cells: what is done to memory, on how much DRAM, and what either backend is held to there.

/// One cell. Contents are random, so that nothing compresses, unless it says otherwise.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    pub(super) name: &'static str,
    pub(super) pattern: &'static str,
    pub(super) read_percent: u32,
    pub(super) threads: u32,
    /// The set is so many times the budget.
    pub(super) set_per_dram: u64,
    /// How much of each page is zeroes, in per cent.
    pub(super) compressible: u32,
    /// What suits swap best here: it reads 2 to the power of this pages at a time.
    pub(super) page_cluster: u32,
    /// Whether swap has its compressed tier in DRAM.
    pub(super) zswap: bool,
    /// At least so many times swap's pages a second.
    pub(super) rate_min: f64,
}

impl Cell {
    /// Whether it is read as the disk can be: at random, each thread a page at a time, nothing in between.
    pub(super) fn is_uniform(&self) -> bool {
        self.pattern == UNIFORM.pattern && self.compressible == 0
    }

    /// In words.
    pub(super) fn told(&self) -> String {
        format!(
            "{}, {} % reads, {} threads, set {} x DRAM{}; swap with page-cluster {}{}; at least {} x its pages/s",
            self.pattern,
            self.read_percent,
            self.threads,
            self.set_per_dram,
            if self.compressible > 0 { ", compressible" } else { "" },
            self.page_cluster,
            if self.zswap { " and zswap" } else { "" },
            self.rate_min
        )
    }
}

const UNIFORM: Cell = Cell {
    name: "uniform-writes-1",
    pattern: "uniform",
    read_percent: 0,
    threads: 1,
    set_per_dram: 2,
    compressible: 0,
    page_cluster: 0,
    zswap: false,
    rate_min: 1.2,
};

/// Three parts in a page, two of them zeroes.
const THREE_TO_ONE: u32 = 67;

pub(super) const CELLS: [Cell; 10] = [
    UNIFORM,
    Cell { name: "uniform-writes-4", threads: 4, rate_min: 1.3, ..UNIFORM },
    Cell { name: "uniform-writes-16", threads: 16, rate_min: 1.5, ..UNIFORM },
    Cell { name: "uniform-writes-32", threads: 32, rate_min: 1.7, ..UNIFORM },
    Cell {
        name: "normal-ih-4",
        pattern: "normal-ih",
        read_percent: 50,
        threads: 4,
        set_per_dram: 4,
        rate_min: 1.5,
        ..UNIFORM
    },
    Cell {
        name: "linear-reads-1",
        pattern: "linear",
        read_percent: 100,
        set_per_dram: 4,
        page_cluster: 5,
        rate_min: 1.5,
        ..UNIFORM
    },
    Cell {
        name: "walks-1",
        pattern: "walks:4",
        read_percent: 50,
        set_per_dram: 4,
        page_cluster: 5,
        rate_min: 1.5,
        ..UNIFORM
    },
    Cell {
        name: "scan-skew-4",
        pattern: "scan+skew",
        read_percent: 50,
        threads: 4,
        set_per_dram: 4,
        page_cluster: 3,
        rate_min: 2.0,
        ..UNIFORM
    },
    Cell { name: "compressible-4", threads: 4, compressible: THREE_TO_ONE, rate_min: 3.0, ..UNIFORM },
    Cell {
        name: "compressible-4-zswap",
        threads: 4,
        compressible: THREE_TO_ONE,
        zswap: true,
        rate_min: 1.3,
        ..UNIFORM
    },
];
