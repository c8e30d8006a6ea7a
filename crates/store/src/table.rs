//! A table of thin records. To be written.
