//! Records shown to people: on a terminal and as one self-contained page.

mod detail;
pub mod diskspd;
pub mod fio_json;
pub mod hlog;
pub mod html;
pub mod merged;
mod paging;
mod search;
pub mod spdk_perf;
mod summary;
pub mod text;
mod topology;
