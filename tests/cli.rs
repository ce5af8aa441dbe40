//! The command does what its help says, on real masters.

mod cli {
    mod adopt;
    mod demo;
    mod doctor;
    mod loss;
    mod run;
    mod signals;
    mod support;
    #[cfg(target_os = "linux")]
    mod terminal;
    mod usage;
}
