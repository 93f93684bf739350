//! Reads values in postcard, and checks that what was asked for is what was written.

use serde::de::value::U32Deserializer;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};

use super::super::fault::Fault;
use super::super::shape::{Kind, Names, SHAPE_BYTES, Shape};

const UNEQUAL: &str = "its `Serialize` and `Deserialize` disagree about its parts, so that it would become another value: \
                       skip fields and variants in both directions (`#[serde(skip)]`) and not in one, give them the same \
                       names in both, and use the same type for `into` and `from`";
const NOT_PLAIN: &str = "its `Deserialize` asks the bytes what they are, and was not known to when they were written";

/// The value at the beginning of `bytes`, and what follows it.
pub(in super::super) fn decode<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<(T, &'de [u8]), Fault> {
    let mut reader =
        Reader { rest: bytes, shape: Shape::default(), knows_names: true, last_names: (&[], Names::default()) };
    let value = T::deserialize(&mut reader)?;
    match reader.rest.split_first_chunk::<SHAPE_BYTES>() {
        Some((shape, rest)) if reader.shape.is(*shape, reader.knows_names) => Ok((value, rest)),
        _ => Err(Fault::other(UNEQUAL)),
    }
}

struct Reader<'de> {
    rest: &'de [u8],
    shape: Shape,
    /// The names of all structs so far are known. They are not where fields have aliases, which are in the same list.
    knows_names: bool,
    /// The list of names that was summed last: a list of structs has it again and again.
    last_names: (&'static [&'static str], Names),
}

impl<'de> Reader<'de> {
    /// A part that postcard reads as it is.
    #[inline]
    fn take<T: Deserialize<'de>>(&mut self) -> Result<T, Fault> {
        let (value, rest) = postcard::take_from_bytes(self.rest)
            .map_err(|error| Fault::other(format_args!("{error}; or {UNEQUAL}")))?;
        self.rest = rest;
        Ok(value)
    }

    #[inline]
    fn tuple<V: Visitor<'de>>(&mut self, len: usize, visitor: V) -> Result<V::Value, Fault> {
        let mut parts = Fixed { reader: self, left: len, count: 0 };
        let value = visitor.visit_seq(&mut parts)?;
        let count = parts.count;
        self.shape.note_parts(Kind::Tuple, count);
        Ok(value)
    }

    #[inline]
    fn fields<V: Visitor<'de>>(&mut self, names: &'static [&'static str], visitor: V) -> Result<V::Value, Fault> {
        let mut parts = Fixed { reader: self, left: names.len(), count: 0 };
        let value = visitor.visit_seq(&mut parts)?;
        let count = parts.count;
        self.shape.note_parts(Kind::Struct, count);
        self.knows_names &= count as usize == names.len();
        if !std::ptr::eq(self.last_names.0, names) {
            self.last_names = (names, names.iter().fold(Names::default(), |names, name| names.and(name)));
        }
        self.shape.note_names(self.last_names.1);
        Ok(value)
    }

    fn not_plain<T>(&self) -> Result<T, Fault> {
        Err(Fault::other(NOT_PLAIN))
    }
}

macro_rules! simple {
    ($($method:ident: $visit:ident($type:ty) $kind:ident,)*) => {
        $(#[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            self.shape.note(Kind::$kind);
            visitor.$visit(self.take::<$type>()?)
        })*
    };
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Fault;

    fn is_human_readable(&self) -> bool {
        false
    }

    simple! {
        deserialize_bool: visit_bool(bool) Bool,
        deserialize_u8: visit_u8(u8) U8,
        deserialize_u16: visit_u16(u16) U16,
        deserialize_u32: visit_u32(u32) U32,
        deserialize_u64: visit_u64(u64) U64,
        deserialize_u128: visit_u128(u128) U128,
        deserialize_i8: visit_i8(i8) I8,
        deserialize_i16: visit_i16(i16) I16,
        deserialize_i32: visit_i32(i32) I32,
        deserialize_i64: visit_i64(i64) I64,
        deserialize_i128: visit_i128(i128) I128,
        deserialize_f32: visit_f32(f32) F32,
        deserialize_f64: visit_f64(f64) F64,
        deserialize_char: visit_char(char) Char,
        deserialize_str: visit_borrowed_str(&'de str) Text,
        deserialize_string: visit_borrowed_str(&'de str) Text,
        deserialize_bytes: visit_borrowed_bytes(&'de [u8]) Bytes,
        deserialize_byte_buf: visit_borrowed_bytes(&'de [u8]) Bytes,
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Fault> {
        self.not_plain()
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Fault> {
        self.not_plain()
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Fault> {
        self.not_plain()
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.shape.note(Kind::Option);
        match self.take::<u8>()? {
            0 => visitor.visit_none(),
            1 => visitor.visit_some(self),
            _ => Err(Fault::other(UNEQUAL)),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    #[inline]
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.shape.note(Kind::List);
        let left = self.take::<usize>()?;
        let mut parts = Counted { reader: self, left };
        let value = visitor.visit_seq(&mut parts)?;
        parts.all_read().map(|()| value)
    }

    #[inline]
    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Fault> {
        self.tuple(len, visitor)
    }

    #[inline]
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.tuple(len, visitor)
    }

    #[inline]
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.shape.note(Kind::Map);
        let left = self.take::<usize>()?;
        let mut parts = Counted { reader: self, left };
        let value = visitor.visit_map(&mut parts)?;
        parts.all_read().map(|()| value)
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.fields(fields, visitor)
    }

    #[inline]
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.shape.note(Kind::Variant);
        let index = self.take::<u32>()?;
        // A variant that is skipped by the reader alone moves those behind it. Enums with aliases are never plain.
        let name = variants.get(index as usize).ok_or_else(|| Fault::other(UNEQUAL))?;
        self.shape.note_names(Names::default().and(name));
        visitor.visit_enum(Chosen { index, reader: self })
    }
}

/// A tuple or struct that is being read.
struct Fixed<'r, 'de> {
    reader: &'r mut Reader<'de>,
    left: usize,
    /// Parts that took bytes.
    count: u32,
}

impl<'de> SeqAccess<'de> for Fixed<'_, 'de> {
    type Error = Fault;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let before = self.reader.rest.len();
        let value = seed.deserialize(&mut *self.reader)?;
        if self.reader.rest.len() < before {
            self.count += 1;
            self.reader.shape.next_part();
        }
        Ok(Some(value))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// A list or map that is being read.
struct Counted<'r, 'de> {
    reader: &'r mut Reader<'de>,
    left: usize,
}

impl Counted<'_, '_> {
    #[inline]
    fn all_read(&self) -> Result<(), Fault> {
        if self.left > 0 { Err(Fault::other(UNEQUAL)) } else { Ok(()) }
    }
}

impl<'de> SeqAccess<'de> for Counted<'_, 'de> {
    type Error = Fault;

    #[inline]
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

impl<'de> MapAccess<'de> for Counted<'_, 'de> {
    type Error = Fault;

    #[inline]
    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        self.next_element_seed(seed)
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// A variant and its content.
struct Chosen<'r, 'de> {
    index: u32,
    reader: &'r mut Reader<'de>,
}

impl<'r, 'de> EnumAccess<'de> for Chosen<'r, 'de> {
    type Error = Fault;
    type Variant = &'r mut Reader<'de>;

    #[inline]
    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, &'r mut Reader<'de>), Fault> {
        let index: U32Deserializer<Fault> = self.index.into_deserializer();
        Ok((seed.deserialize(index)?, self.reader))
    }
}

impl<'de> VariantAccess<'de> for &mut Reader<'de> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        Ok(())
    }

    #[inline]
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Fault> {
        seed.deserialize(self)
    }

    #[inline]
    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Fault> {
        self.tuple(len, visitor)
    }

    #[inline]
    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Fault> {
        self.fields(fields, visitor)
    }
}
