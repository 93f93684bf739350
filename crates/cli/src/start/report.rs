//! What a node says when it is ready: through the pipe, and to people.

use std::path::PathBuf;

use bireme_runtime::local::NodeFile;
use serde::{Deserialize, Serialize};

use crate::Outcome;

/// Where what is printed beside the labels begins.
const INDENT: &str = "                              ";

/// A node that is ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Report {
    /// Who it is.
    #[serde(flatten)]
    pub(super) node: NodeFile,
    /// A file with a token for others to join with, if they need one.
    pub(super) token_file: Option<PathBuf>,
}

impl Report {
    /// Prints it.
    pub(super) fn print(&self, json: bool) -> Outcome<()> {
        match json {
            true => println!("{}", serde_json::to_string_pretty(self)?),
            false => print!("{}", self.text()),
        }
        Ok(())
    }

    fn text(&self) -> String {
        let NodeFile { node, cluster, address, head, log, process, .. } = &self.node;
        let (token, copy) = match &self.token_file {
            Some(path) => {
                let note = "(from another machine: copy that file there first, readable by you alone)";
                (format!(" --token-file {}", path.display()), format!("{INDENT}{note}\n"))
            }
            None if is_loopback(head) => (String::new(), String::new()),
            None => {
                (" --token-file FILE".to_owned(), format!("{INDENT}(FILE: as given by `bireme token create` there)\n"))
            }
        };
        let client = match is_loopback(head) {
            true => String::new(),
            false => {
                format!("{INDENT}(from a machine without a node, with a token: `bireme token create --for client`)\n")
            }
        };
        format!(
            "{node} of cluster {cluster} is running at {address} (process {})\n\n  \
             one more node joins with:   bireme start --address {head}{token}\n{copy}  \
             a program connects with:    bireme.init(address=\"{head}\")\n{client}  \
             what runs is shown by:      bireme status\n  \
             it ends with:               bireme stop --address {address}\n  \
             its log:                    {}\n",
            process.id,
            log.display()
        )
    }
}

fn is_loopback(address: &str) -> bool {
    address.parse::<std::net::SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use bireme_runtime::core::id::NodeId;
    use bireme_runtime::local::ProcessMark;

    use super::*;

    fn report(head: &str, token_file: Option<&str>) -> Report {
        let node = NodeFile {
            node: NodeId(2),
            cluster: "c1".to_owned(),
            address: "10.0.0.2:7".to_owned(),
            head: head.to_owned(),
            socket: PathBuf::from("/s/node.sock"),
            log: PathBuf::from("/s/node.log"),
            version: "0".to_owned(),
            process: ProcessMark { id: 5, start: 6, boot: "b".to_owned() },
        };
        Report { node, token_file: token_file.map(PathBuf::from) }
    }

    #[test]
    fn the_text_says_how_to_join_to_connect_and_to_stop() {
        let text = report("10.0.0.1:7", Some("/t")).text();
        for words in [
            "node-2 of cluster c1 is running at 10.0.0.2:7 (process 5)",
            "bireme start --address 10.0.0.1:7 --token-file /t\n",
            "bireme.init(address=\"10.0.0.1:7\")",
            "bireme token create --for client",
            "bireme status",
            "bireme stop --address 10.0.0.2:7",
            "/s/node.log",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert!(report("10.0.0.1:7", None).text().contains("--token-file FILE"));
        assert!(!report("127.0.0.1:7", None).text().contains("token"), "nobody else can reach it");
    }

    #[test]
    fn what_goes_through_the_pipe_comes_out_of_it() {
        let sent = report("10.0.0.1:7", Some("/t"));
        let text = serde_json::to_string(&Ok::<_, String>(sent.clone())).unwrap();
        let got: Result<Report, String> = serde_json::from_str(&text).unwrap();
        let got = got.unwrap();
        assert_eq!((got.node, got.token_file), (sent.node, sent.token_file));
    }
}
