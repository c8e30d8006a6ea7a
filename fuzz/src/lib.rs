//! Helpers of the fuzz targets.

pub mod memory;
