//! Serde for the hand-coded types, so that rare control messages can carry them whole.

use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::codec::{Malformed, Reader};
use crate::spec::TaskSpec;
use crate::value::Value;

struct Bytes<T>(fn(&mut Reader<'_>) -> Result<T, Malformed>);

impl<T> Visitor<'_> for Bytes<T> {
    type Value = T;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an encoded value")
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<T, E> {
        let mut reader = Reader::new(bytes);
        let value = (self.0)(&mut reader).map_err(E::custom)?;
        reader.finish().map_err(E::custom)?;
        Ok(value)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = Vec::new();
        self.encode(&mut out);
        serializer.serialize_bytes(&out)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Bytes(Value::decode)).map_err(D::Error::custom)
    }
}

impl Serialize for TaskSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = Vec::new();
        self.encode(&mut out);
        serializer.serialize_bytes(&out)
    }
}

impl<'de> Deserialize<'de> for TaskSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Bytes(TaskSpec::decode)).map_err(D::Error::custom)
    }
}
