//! The start that the programs share: the engine inside the program, or the cluster that the command line names.

/// Starts the engine: on the cluster whose address is the first argument, else inside the program.
pub fn start() -> bireme::Result<bireme::Context> {
    match std::env::args().nth(1) {
        Some(address) => bireme::init_with(bireme::Config::default().address(&address)),
        None => bireme::init(),
    }
}
