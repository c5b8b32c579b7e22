//! Commands, the data that they work on, and how both are made.

pub mod allowed_processors;
pub mod compile_program;
pub mod copy_tree;
pub mod job;
pub mod linux_source;
pub mod other_user;
pub mod progress;
pub mod redis_source;
pub mod row_datasets;
pub mod share_programs;
pub mod shared_libraries;

// One file for each dataset.
pub mod competing_parts;
pub mod dependent_reads;
pub mod installed_programs;
pub mod jpeg_files;
pub mod loader_samples;
pub mod mapped_files;
pub mod netcdf_slices;
pub mod object_files;
pub mod out_of_core;
pub mod parquet_tables;
pub mod postgres_join;
pub mod speech_models;
pub mod sqlite_orders;
