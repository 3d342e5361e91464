//! The lines between the runner and this process.

use libp2p::Multiaddr;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Command {
    Connect {
        address: Multiaddr,
    },
    Subscribe,
    Unsubscribe,
    Publish {
        tag: String,
        count: u64,
        size: usize,
        #[serde(default)]
        rate: f64,
    },
    Status,
    Stop,
}

/// The number of a command that is answered later, perhaps beside others.
#[derive(Clone, Copy)]
pub struct Question(u64);

impl Question {
    pub fn answer(self, mut fields: Value) {
        fields["answer"] = self.0.into();
        println!("{fields}");
    }

    pub fn fail(self, error: impl ToString) {
        self.answer(json!({ "error": error.to_string() }));
    }
}

/// Reads a line of the runner; a command that cannot be read is answered here, and is None.
pub fn command<C: DeserializeOwned>(
    line: &str,
) -> Result<Option<(Question, C)>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Numbered {
        id: u64,
    }

    let Numbered { id } = serde_json::from_str(line)?;
    let question = Question(id);
    match serde_json::from_str(line) {
        Ok(command) => Ok(Some((question, command))),
        Err(error) => {
            question.fail(error);
            Ok(None)
        }
    }
}

pub fn event(name: &str, mut fields: Value) {
    fields["event"] = name.into();
    println!("{fields}");
}
