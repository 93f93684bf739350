//! Reads values by their kinds and names.

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

use super::super::fault::Fault;
use super::{
    BYTES, CHAR, DOUBLE, FALSE, FLOAT, LIST, MAP, NONE, SIGNED, SIGNED_LONG, SOME, TEXT, TRUE, UNIT, UNSIGNED,
    UNSIGNED_LONG, VARIANT,
};

/// The value at the beginning of `bytes`, and what follows it.
pub(in super::super) fn decode<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<(T, &'de [u8]), Fault> {
    let mut reader = Reader(bytes);
    let value = T::deserialize(&mut reader)?;
    Ok((value, reader.0))
}

struct Reader<'de>(&'de [u8]);

fn broken(what: &str) -> Fault {
    Fault::other(format_args!("the bytes are damaged: {what}"))
}

impl<'de> Reader<'de> {
    fn take(&mut self, len: usize) -> Result<&'de [u8], Fault> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or_else(|| broken("they end too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or_else(|| broken("they end too early"))?;
        self.0 = rest;
        Ok(*taken)
    }

    fn count(&mut self) -> Result<usize, Fault> {
        usize::try_from(u64::from_le_bytes(self.array()?)).map_err(|_| broken("a length is too large"))
    }

    fn bytes(&mut self) -> Result<&'de [u8], Fault> {
        let len = self.count()?;
        self.take(len)
    }

    fn text(&mut self) -> Result<&'de str, Fault> {
        std::str::from_utf8(self.bytes()?).map_err(|_| broken("a text is not UTF-8"))
    }

    fn kind(&self) -> Result<u8, Fault> {
        self.0.first().copied().ok_or_else(|| broken("they end too early"))
    }

    fn list<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Fault> {
        let left = self.count()?;
        let mut parts = Parts { reader: self, left };
        let value = visitor.visit_seq(&mut parts)?;
        parts.all_read().map(|()| value)
    }

    fn map<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Fault> {
        let left = self.count()?;
        let mut parts = Parts { reader: self, left };
        let value = visitor.visit_map(&mut parts)?;
        parts.all_read().map(|()| value)
    }
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Fault;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let [kind] = self.array()?;
        match kind {
            UNIT => visitor.visit_unit(),
            FALSE => visitor.visit_bool(false),
            TRUE => visitor.visit_bool(true),
            UNSIGNED => visitor.visit_u64(u64::from_le_bytes(self.array()?)),
            SIGNED => visitor.visit_i64(i64::from_le_bytes(self.array()?)),
            UNSIGNED_LONG => visitor.visit_u128(u128::from_le_bytes(self.array()?)),
            SIGNED_LONG => visitor.visit_i128(i128::from_le_bytes(self.array()?)),
            FLOAT => visitor.visit_f32(f32::from_le_bytes(self.array()?)),
            DOUBLE => visitor.visit_f64(f64::from_le_bytes(self.array()?)),
            CHAR => {
                let code = u32::from_le_bytes(self.array()?);
                visitor.visit_char(char::from_u32(code).ok_or_else(|| broken("no such character"))?)
            }
            TEXT => visitor.visit_borrowed_str(self.text()?),
            BYTES => visitor.visit_borrowed_bytes(self.bytes()?),
            NONE => visitor.visit_none(),
            SOME => visitor.visit_some(self),
            LIST => self.list(visitor),
            MAP => self.map(visitor),
            VARIANT => {
                // As formats for people have it. There a variant without content is its name alone, which a reader who takes
                // any text would take for one; as a pair it is a variant to all who know the enum.
                let name = self.text()?;
                visitor.visit_map(OnePair { name: Some(name), reader: self })
            }
            _ => Err(broken("an unknown kind of value")),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.kind()? {
            NONE | SOME => self.deserialize_any(visitor),
            UNIT => {
                self.take(1)?;
                visitor.visit_none()
            }
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let [kind] = self.array()?;
        match kind {
            VARIANT => {
                let name = self.text()?;
                visitor.visit_enum(Chosen { name, reader: self })
            }
            TEXT => visitor.visit_enum(self.text()?.into_deserializer()),
            MAP if self.count()? == 1 && self.array()? == [TEXT] => {
                let name = self.text()?;
                visitor.visit_enum(Chosen { name, reader: self })
            }
            _ => Err(Fault::other("it is no variant of an enum")),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// A list or a map that is being read.
struct Parts<'r, 'de> {
    reader: &'r mut Reader<'de>,
    left: usize,
}

impl Parts<'_, '_> {
    fn all_read(&self) -> Result<(), Fault> {
        match self.left {
            0 => Ok(()),
            left => Err(Fault::other(format_args!("{left} more elements than expected"))),
        }
    }
}

impl<'de> SeqAccess<'de> for Parts<'_, 'de> {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> MapAccess<'de> for Parts<'_, 'de> {
    type Error = Fault;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// A variant as a map of one pair.
struct OnePair<'r, 'de> {
    name: Option<&'de str>,
    reader: &'r mut Reader<'de>,
}

impl<'de> MapAccess<'de> for OnePair<'_, 'de> {
    type Error = Fault;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        let name = self.name.take().map(BorrowedStrDeserializer::new);
        name.map(|name| seed.deserialize(name)).transpose()
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        seed.deserialize(&mut *self.reader)
    }
}

/// A variant and its content.
struct Chosen<'r, 'de> {
    name: &'de str,
    reader: &'r mut Reader<'de>,
}

impl<'r, 'de> EnumAccess<'de> for Chosen<'r, 'de> {
    type Error = Fault;
    type Variant = &'r mut Reader<'de>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, &'r mut Reader<'de>), Fault> {
        let variant = seed.deserialize(BorrowedStrDeserializer::<Fault>::new(self.name))?;
        Ok((variant, self.reader))
    }
}

impl<'de> VariantAccess<'de> for &mut Reader<'de> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        Deserialize::deserialize(self)
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Fault> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_any(visitor)
    }
}
