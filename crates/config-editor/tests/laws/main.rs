//! What holds for every file that is edited here.

mod edits;
mod files;
mod random;
mod writers;
