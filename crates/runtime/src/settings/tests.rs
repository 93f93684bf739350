//! Which place counts, what is refused, and which node a program finds.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bireme_core::id::NodeId;

use super::discover::discover_in;
use super::*;
use crate::local::{NodeFile, ProcessMark, StateDirectory};

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bireme-settings-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn surroundings(variables: &[(&str, &str)]) -> Surroundings {
    Surroundings {
        environment: variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect(),
        user: rustix::process::geteuid().as_raw(),
        executable: None,
        home: variables.iter().find(|(name, _)| *name == "HOME").map(|(_, home)| PathBuf::from(home)),
        working_directory: PathBuf::from("/work-here"),
    }
}

fn flags(given: &[(&'static str, &str)]) -> Flags {
    given.iter().map(|(name, text)| (*name, (*text).to_owned())).collect()
}

fn entry(name: &str, flags: &Flags, surroundings: &Surroundings) -> (String, String) {
    let entries = resolve(flags, surroundings).unwrap();
    let entry = entries.iter().find(|entry| entry.setting.name == name).unwrap();
    (entry.shown(), entry.origin.to_string())
}

#[test]
fn a_flag_wins_over_the_environment_over_the_file_over_the_default() {
    let folder = Folder::new("order");
    let file = folder.file("c.toml", "num_cpus = 3\nport = 3\n", 0o644);
    let config = file.to_str().unwrap();
    let in_file = format!("{config}:1");
    for (flag, variable, file, expected) in [
        (Some("1"), Some("2"), true, ("1", "--num-cpus")),
        (Some("1"), None, false, ("1", "--num-cpus")),
        (None, Some("2"), true, ("2", "BIREME_NUM_CPUS")),
        (None, Some("2"), false, ("2", "BIREME_NUM_CPUS")),
        (None, Some(""), true, ("3", in_file.as_str())),
        (None, None, true, ("3", in_file.as_str())),
        (None, None, false, ("(all of the machine)", "default")),
    ] {
        let flags = flag.map_or_else(Flags::new, |text| flags(&[("num_cpus", text)]));
        let mut variables: Vec<(&str, &str)> = variable.map(|text| ("BIREME_NUM_CPUS", text)).into_iter().collect();
        variables.extend(file.then_some(("BIREME_CONFIG", config)));
        let (value, origin) = entry("num_cpus", &flags, &surroundings(&variables));
        assert_eq!((value.as_str(), origin.as_str()), expected);
    }
}

#[test]
fn every_setting_can_be_said_in_all_three_places_that_it_has() {
    let folder = Folder::new("each");
    for setting in SETTINGS {
        let text = match setting.kind {
            Kind::Text | Kind::Secret | Kind::Path => "/x",
            Kind::Address => "h:1",
            Kind::Ip => "::1",
            Kind::Port | Kind::Count | Kind::Amount | Kind::Fraction | Kind::Bytes => "1",
            Kind::Resources => "a=1",
            Kind::Duration => "1s",
            Kind::Delay => "5ms",
            Kind::Switch => "off",
        };
        let file = folder.file("c.toml", &format!("{} = {text:?}\n", setting.name), 0o600);
        let found = |flags: &Flags, variables: &[(&str, &str)]| entry(setting.name, flags, &surroundings(variables)).1;
        assert_eq!(found(&Flags::new(), &[(setting.variable, text)]), setting.variable);
        assert_eq!(found(&Flags::new(), &[("BIREME_CONFIG", file.to_str().unwrap())]), format!("{}:1", file.display()));
        if let Some(flag) = setting.flag {
            assert_eq!(found(&flags(&[(setting.name, text)]), &[]), format!("--{flag}"));
        }
    }
}

#[test]
fn the_file_is_the_named_one_or_the_usual_one_if_it_is_there() {
    let folder = Folder::new("place");
    fs::create_dir_all(folder.0.join("bireme")).unwrap();
    let home = folder.0.to_str().unwrap();
    assert_eq!(entry("port", &Flags::new(), &surroundings(&[("XDG_CONFIG_HOME", home)])).0, "0");
    folder.file("bireme/config.toml", "port = 7\nlog_directory = \"logs\"\n", 0o644);
    let usual = surroundings(&[("XDG_CONFIG_HOME", home), ("HOME", "/nowhere")]);
    assert_eq!(entry("port", &Flags::new(), &usual).0, "7");
    let beside = folder.0.join("bireme/logs").display().to_string();
    assert_eq!(entry("log_directory", &Flags::new(), &usual).0, beside, "paths begin where the file is");
    let missing = surroundings(&[("XDG_CONFIG_HOME", home), ("BIREME_CONFIG", "missing.toml")]);
    let error = resolve(&Flags::new(), &missing).err().unwrap();
    assert!(matches!(&error, SettingsError::Unreadable { path, .. } if path == Path::new("/work-here/missing.toml")));
}

#[test]
fn a_bad_value_names_its_place_and_what_would_be_right() {
    let folder = Folder::new("bad");
    let file = folder.file("c.toml", "\nmemory = \"much\"\n", 0o644);
    let config = [("BIREME_CONFIG", file.to_str().unwrap())];
    let error =
        |flags: &Flags, variables: &[(&str, &str)]| resolve(flags, &surroundings(variables)).err().unwrap().to_string();
    let said = error(&Flags::new(), &config);
    assert!(said.starts_with(&format!("{}:2: \"much\" is no size", file.display())), "{said}");
    let said = error(&flags(&[("port", "x")]), &[]);
    assert!(said.starts_with("--port: \"x\" is no port") && said.ends_with("port takes PORT"), "{said}");
    let said = error(&Flags::new(), &[("BIREME_HOST", "here")]);
    assert!(said.starts_with("BIREME_HOST: \"here\" is no IP address"), "{said}");
}

fn load(flags: &Flags, variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    Settings::of(&resolve(flags, &surroundings(variables)).unwrap())
}

#[test]
fn defaults_make_settings_that_listen_on_loopback_and_encrypt() {
    let settings = load(&Flags::new(), &[]).unwrap();
    assert!(settings.host.is_loopback() && settings.bulk_encryption);
    assert_eq!((settings.port, settings.cpus, settings.gpus, settings.replicas), (0, None, 0.0, 0));
    assert_eq!((settings.heartbeat_period.as_millis(), settings.node_lease.as_millis()), (50, 2_000));
    assert_eq!(settings.state_directory, Path::new(&format!("/tmp/bireme-{}", rustix::process::geteuid().as_raw())));
    assert_eq!((settings.python.as_str(), settings.memory_limit_fraction), ("python3", 0.95));
    assert_eq!(settings.config().workers_max, Some(1_024));
}

#[test]
fn a_program_with_its_node_inside_has_as_many_processes_as_the_environment_says() {
    let with = |value: &str| {
        let environment = [("BIREME_PROCESSES_MAX".to_owned(), value.into())].into();
        super::processes_max(&Surroundings { environment, ..Surroundings::default() })
    };
    assert_eq!((with("7").unwrap(), with("").unwrap()), (7, 1_024));
    for bad in ["0", "4096", "99999999999", "many"] {
        let said = with(bad).unwrap_err().to_string();
        assert!(said.contains("BIREME_PROCESSES_MAX"), "{said}");
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    for (given, word) in [
        (flags(&[("replicas", "1")]), "--replicas: 1 replicas"),
        (flags(&[("processes_max", "0")]), "--processes-max: "),
        (flags(&[("processes_max", "4096")]), "--processes-max: "),
        (flags(&[("node_lease", "200ms")]), "--node-lease: a node lease of 200ms"),
        (flags(&[("link_delay", "2s")]), "--link-delay: a link delay of 2s"),
    ] {
        let said = load(&given, &[]).err().unwrap().to_string();
        assert!(said.starts_with(word), "{said}");
    }
}

#[test]
fn a_token_comes_from_a_file_that_only_its_user_can_read_and_is_never_shown() {
    let folder = Folder::new("token");
    let file = folder.file("token", "from-file\n", 0o600);
    let file = file.to_str().unwrap();
    let by_flag = flags(&[("token_file", file)]);
    let token = |flags: &Flags, variables: &[(&str, &str)]| {
        load(flags, variables).map(|settings| settings.token.map(|token| token.reveal().to_owned()))
    };
    assert_eq!(token(&Flags::new(), &[]), Ok(None));
    assert_eq!(token(&by_flag, &[("BIREME_TOKEN", "direct")]).unwrap().unwrap(), "from-file", "the flag wins");
    let both = [("BIREME_TOKEN", "direct"), ("BIREME_TOKEN_FILE", file)];
    assert_eq!(token(&Flags::new(), &both).unwrap().unwrap(), "direct");
    let settings = load(&by_flag, &[]).unwrap();
    assert!(!format!("{settings:?}").contains("from-file"));
    assert_eq!(entry("token", &Flags::new(), &surroundings(&both)).0, "(secret)");

    folder.file("token", "from-file\n", 0o640);
    assert!(matches!(token(&by_flag, &[]), Err(SettingsError::Exposed { mode: 0o640, .. })));
    folder.file("token", " \n", 0o600);
    assert!(matches!(token(&by_flag, &[]), Err(SettingsError::Unreadable { .. })));
    let config = folder.file("c.toml", "token = \"direct\"\n", 0o644);
    let config = surroundings(&[("BIREME_CONFIG", config.to_str().unwrap())]);
    assert!(matches!(resolve(&Flags::new(), &config), Err(SettingsError::Exposed { .. })));
}

#[test]
fn keys_are_in_the_users_own_home_and_never_in_that_of_another() {
    let path = std::env::temp_dir().join(format!("bireme-home-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    let home = path.to_str().unwrap();
    let state = path.join("made-when-needed");
    let of = |variables: &[(&str, &str)]| surroundings(variables).key_directory();
    assert_eq!(of(&[("HOME", home)]), Some(path.join(".local/state/bireme")));
    assert_eq!(of(&[("HOME", home), ("XDG_STATE_HOME", state.to_str().unwrap())]), Some(state.join("bireme")));
    assert_eq!(of(&[("HOME", home), ("XDG_STATE_HOME", "relative")]), None);
    assert_eq!(of(&[("HOME", "/nowhere-at-all")]), None);
    let mut other = surroundings(&[("HOME", home)]);
    other.user += 1;
    assert_eq!(other.key_directory(), None, "left over in the environment");
    std::fs::remove_dir(path).unwrap();
}

#[test]
fn the_state_directory_is_in_the_users_own_folder_only_if_it_is_the_users() {
    let folder = Folder::new("runtime");
    let path = folder.0.to_str().unwrap();
    let mut here = surroundings(&[("XDG_RUNTIME_DIR", path)]);
    assert_eq!(here.state_directory(), format!("{path}/bireme"));
    here.user += 1;
    assert_eq!(here.state_directory(), format!("/tmp/bireme-{}", here.user), "left over in the environment");
    assert!(surroundings(&[("XDG_RUNTIME_DIR", "relative")]).state_directory().starts_with("/tmp/"));
}

#[test]
fn the_interpreter_is_the_one_beside_the_executable() {
    let folder = Folder::new("python");
    let mut here = surroundings(&[]);
    here.executable = Some(folder.0.join("bireme"));
    assert_eq!(here.python(), "python3");
    let beside = folder.file("python3", "", 0o755);
    assert_eq!(here.python(), beside.display().to_string());
}

/// Puts a node into a state directory that this process stands for.
fn add_node(folder: &Folder, name: &str, node: u32, process: ProcessMark) -> NodeFile {
    let path = folder.0.join("nodes").join(name);
    fs::create_dir_all(&path).unwrap();
    let file = NodeFile {
        node: NodeId(node),
        cluster: format!("c{node}"),
        address: format!("10.0.0.{node}:7"),
        head: "10.0.0.99:7".to_owned(),
        socket: path.join(NodeFile::SOCKET),
        log: path.join(NodeFile::LOG),
        version: String::new(),
        process,
    };
    file.write(&path).unwrap();
    file
}

#[test]
fn a_program_finds_the_one_node_of_its_user_or_the_one_that_it_names() {
    let folder = Folder::new("find");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o700)).unwrap();
    let path = folder.0.to_str().unwrap();
    let find = |address: &str, more: &[(&str, &str)]| {
        let variables = [&[("BIREME_STATE_DIRECTORY", path)], more].concat();
        discover_in(address, &surroundings(&variables)).map_err(|error| error.to_string())
    };
    let remote = |address: &str| Ok(Endpoint::Remote { address: address.to_owned() });
    assert!(find("auto", &[]).unwrap_err().contains("bireme start"));
    assert_eq!(find("auto", &[("BIREME_ADDRESS", "far:1")]), remote("far:1"));
    assert!(find("nonsense", &[]).unwrap_err().contains("HOST:PORT"));

    let here = ProcessMark::of_this_process().unwrap();
    add_node(&folder, "dead", 8, ProcessMark { start: here.start + 1, ..here.clone() });
    let first = add_node(&folder, "first", 1, here.clone());
    let near = |node: &NodeFile| Ok(Endpoint::Local { socket: node.socket.clone(), node: Box::new(node.clone()) });
    assert_eq!(find("auto", &[]), near(&first), "a node whose process is gone does not count");
    assert_eq!(find("auto", &[("BIREME_ADDRESS", "far:1")]), remote("far:1"));
    assert_eq!(find("10.0.0.1:7", &[]), near(&first));
    assert_eq!(find("10.0.0.99:7", &[]), near(&first), "a node of that cluster is here");
    assert_eq!(find("10.0.0.8:7", &[]), remote("10.0.0.8:7"));

    add_node(&folder, "second", 2, here);
    let said = find("auto", &[]).unwrap_err();
    assert!(said.contains("2 nodes") && said.contains("10.0.0.1:7") && said.contains("10.0.0.2:7"), "{said}");
    assert_eq!(StateDirectory::open(&folder.0).unwrap().running().len(), 2);
}
