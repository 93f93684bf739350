//! Which Python has the package, and the environment in which the peer is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::super::Outcome;

/// Prints where the package is, without importing it, and what of the script's needs is missing.
const LOOK: &str = "
import importlib.util, os, sys
found = importlib.util.find_spec('bireme')
places = list(found.submodule_search_locations or []) if found else []
print(places[0] if places else '')
print(' '.join(name for name in ('numpy', 'cloudpickle') if importlib.util.find_spec(name) is None))
";
/// What the peer's environment holds; a change of this makes a new one.
const RAY_PACKAGES: &[&str] = &["ray==2.60.0", "numpy", "psutil"];
/// Ray reports nothing to anybody.
pub(in crate::bench) const RAY_SETTINGS: [(&str, &str); 2] =
    [("RAY_USAGE_STATS_ENABLED", "0"), ("RAY_enable_metrics_collection", "0")];
/// Written when the environment is complete, so that an interrupted installation is made again.
const COMPLETE: &str = "complete";

/// A Python that has the package.
pub(in crate::bench) struct Interpreter {
    path: PathBuf,
    package: PathBuf,
}

impl Interpreter {
    /// The one that was named, or else the first that is there: beside this command, of the environment, on `PATH`.
    pub(in crate::bench) fn find(named: Option<&Path>) -> Outcome<Self> {
        let path = match named {
            Some(path) => path.to_path_buf(),
            None => candidates().into_iter().find(|path| path.is_file()).unwrap_or_else(|| "python3".into()),
        };
        let shown = path.display();
        let mut command = Command::new(&path);
        // Not the folder we were called in: it may have a folder of the package's name.
        command.args(["-P", "-c", LOOK]).stdin(Stdio::null());
        let output = command.output().map_err(|error| format!("{shown}: {error}; name a Python with --python-exe"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut lines = text.lines();
        let (package, missing) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        if !output.status.success() {
            return Err(format!("{shown} is no Python: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
        }
        if package.is_empty() {
            let text = "the Python package bireme is not installed; `pip install .` in the repository installs it";
            return Err(format!("{shown}: {text}, or name another Python with --python-exe").into());
        }
        if !missing.is_empty() {
            return Err(format!("{shown}: the benchmark needs {missing}: `{shown} -m pip install {missing}`").into());
        }
        Ok(Self { package: package.into(), path })
    }

    /// The executable.
    pub(in crate::bench) fn path(&self) -> &Path {
        &self.path
    }

    /// A benchmark script, part of the package.
    pub(in crate::bench) fn script(&self, name: &str) -> Outcome<PathBuf> {
        let script = self.package.join("bench").join(name);
        if !script.is_file() {
            return Err(format!("{} is not there: install the package again", script.display()).into());
        }
        Ok(script)
    }
}

/// Where a Python with the package may be, the likeliest first. `PATH` is left to the system.
fn candidates() -> Vec<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.join("python3")));
    let active = std::env::var_os("VIRTUAL_ENV").map(|folder| Path::new(&folder).join("bin/python3"));
    beside.into_iter().chain(active).collect()
}

/// The Python of an environment with Ray, made with this Python when it is not there yet.
pub(in crate::bench) fn with_ray(python: &Path) -> Outcome<PathBuf> {
    let folder = peers_folder()?.join("ray");
    let executable = folder.join("bin").join("python3");
    let wanted = RAY_PACKAGES.join("\n");
    if fs::read_to_string(folder.join(COMPLETE)).is_ok_and(|found| found == wanted) {
        return Ok(executable);
    }
    eprintln!("bireme: installing {} into {}, once", RAY_PACKAGES.join(", "), folder.display());
    let why = "Ray cannot be installed; bars that are multiples of it cannot be judged without it";
    succeed(Command::new(python).args(["-m", "venv", "--clear"]).arg(&folder), why)?;
    let mut install = Command::new(&executable);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(RAY_PACKAGES);
    succeed(&mut install, why)?;
    fs::write(folder.join(COMPLETE), wanted)?;
    Ok(executable)
}

pub(in crate::bench) fn succeed(command: &mut Command, why: &str) -> Outcome<()> {
    // Our output is the table: what the command says goes to people.
    let status = command.stdin(Stdio::null()).stdout(std::io::stderr()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{why}: {command:?} ended with {status}").into()),
        Err(error) => Err(format!("{why}: {command:?}: {error}").into()),
    }
}

/// In a checkout among the build products, else in the user's cache.
pub(in crate::bench) fn peers_folder() -> Outcome<PathBuf> {
    let here = std::env::current_dir()?;
    if let Some(root) = here.ancestors().find(|folder| folder.join("crates/cli/Cargo.toml").is_file()) {
        return Ok(root.join("target/peers"));
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    Ok(cache.ok_or("neither XDG_CACHE_HOME nor HOME says where a peer can be installed")?.join("bireme/peers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_python_that_is_not_there_is_named_with_the_remedy() {
        let error = Interpreter::find(Some(Path::new("/no/such/python"))).err().map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.contains("/no/such/python") && text.contains("--python-exe")));
    }

    #[test]
    fn what_is_no_python_is_said_to_be_none() {
        let error = Interpreter::find(Some(Path::new("/bin/false"))).err().map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.contains("/bin/false is no Python")));
    }

    #[test]
    fn a_checkout_keeps_its_peers_among_the_build_products() {
        assert!(peers_folder().is_ok_and(|folder| folder.ends_with("target/peers")));
    }
}
