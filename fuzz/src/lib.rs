//! What fuzz targets share.

pub mod memory;
