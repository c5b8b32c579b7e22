//! Data and programs that rows work on, and the jobs that work on them.

pub mod competing_parts;
pub mod compile_program;
pub mod copy_tree;
pub mod datasets;
pub mod dependent_reads;
pub mod installed_programs;
pub mod job;
pub mod jpeg_files;
pub mod linux_source;
pub mod loader_samples;
pub mod mapped_files;
pub mod netcdf_slices;
pub mod object_files;
pub mod out_of_core;
pub mod parquet_tables;
pub mod postgres_join;
pub mod progress;
pub mod redis_source;
pub mod share_programs;
pub mod shared_libraries;
pub mod speech_models;
pub mod sqlite_orders;
pub mod system_programs;
