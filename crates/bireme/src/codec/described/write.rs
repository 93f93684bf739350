//! Writes values with their kinds and names.

use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::super::fault::Fault;
use super::{
    BYTES, CHAR, DOUBLE, FALSE, FLOAT, LIST, MAP, NONE, SIGNED, SIGNED_LONG, SOME, TEXT, TRUE, UNIT, UNSIGNED,
    UNSIGNED_LONG, VARIANT,
};

/// Appends a value.
pub(in super::super) fn encode<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) -> Result<(), Fault> {
    value.serialize(&mut Writer(out))
}

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn kind(&mut self, kind: u8, bytes: &[u8]) -> Result<(), Fault> {
        self.0.push(kind);
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn long(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.0.extend_from_slice(bytes);
    }

    fn variant(&mut self, name: &str) {
        self.0.push(VARIANT);
        self.long(name.as_bytes());
    }
}

impl<'w, 'a> Writer<'a> {
    /// A list or a map, whose count is written when it is known.
    fn open(&'w mut self, kind: u8) -> Parts<'w, 'a> {
        self.0.push(kind);
        let at = self.0.len();
        self.0.extend_from_slice(&[0; size_of::<u64>()]);
        Parts { writer: self, at, count: 0 }
    }
}

macro_rules! numbers {
    ($($method:ident($type:ty) as $wide:ty: $kind:ident,)*) => {
        $(fn $method(self, value: $type) -> Result<(), Fault> {
            self.kind($kind, &<$wide>::from(value).to_le_bytes())
        })*
    };
}

impl<'w, 'a> Serializer for &'w mut Writer<'a> {
    type Ok = ();
    type Error = Fault;
    type SerializeSeq = Parts<'w, 'a>;
    type SerializeTuple = Parts<'w, 'a>;
    type SerializeTupleStruct = Parts<'w, 'a>;
    type SerializeTupleVariant = Parts<'w, 'a>;
    type SerializeMap = Parts<'w, 'a>;
    type SerializeStruct = Parts<'w, 'a>;
    type SerializeStructVariant = Parts<'w, 'a>;

    fn is_human_readable(&self) -> bool {
        false
    }

    numbers! {
        serialize_u8(u8) as u64: UNSIGNED,
        serialize_u16(u16) as u64: UNSIGNED,
        serialize_u32(u32) as u64: UNSIGNED,
        serialize_u64(u64) as u64: UNSIGNED,
        serialize_i8(i8) as i64: SIGNED,
        serialize_i16(i16) as i64: SIGNED,
        serialize_i32(i32) as i64: SIGNED,
        serialize_i64(i64) as i64: SIGNED,
        serialize_u128(u128) as u128: UNSIGNED_LONG,
        serialize_i128(i128) as i128: SIGNED_LONG,
        serialize_f32(f32) as f32: FLOAT,
        serialize_f64(f64) as f64: DOUBLE,
        serialize_char(char) as u32: CHAR,
    }

    fn serialize_bool(self, value: bool) -> Result<(), Fault> {
        self.kind(if value { TRUE } else { FALSE }, &[])
    }

    fn serialize_str(self, text: &str) -> Result<(), Fault> {
        self.0.push(TEXT);
        self.long(text.as_bytes());
        Ok(())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<(), Fault> {
        self.0.push(BYTES);
        self.long(bytes);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Fault> {
        self.kind(NONE, &[])
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Fault> {
        self.0.push(SOME);
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Fault> {
        self.kind(UNIT, &[])
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Fault> {
        self.serialize_unit()
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Fault> {
        value.serialize(self)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), Fault> {
        self.variant(variant);
        self.serialize_unit()
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Fault> {
        self.variant(variant);
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Parts<'w, 'a>, Fault> {
        Ok(self.open(LIST))
    }

    fn serialize_tuple(self, _: usize) -> Result<Parts<'w, 'a>, Fault> {
        Ok(self.open(LIST))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Parts<'w, 'a>, Fault> {
        Ok(self.open(LIST))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts<'w, 'a>, Fault> {
        self.variant(variant);
        Ok(self.open(LIST))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Parts<'w, 'a>, Fault> {
        Ok(self.open(MAP))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Parts<'w, 'a>, Fault> {
        Ok(self.open(MAP))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts<'w, 'a>, Fault> {
        self.variant(variant);
        Ok(self.open(MAP))
    }
}

/// A list or a map that is being written.
struct Parts<'w, 'a> {
    writer: &'w mut Writer<'a>,
    /// Where its count goes.
    at: usize,
    count: u64,
}

impl Parts<'_, '_> {
    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
        self.count += 1;
        value.serialize(&mut *self.writer)
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Fault> {
        (&mut *self.writer).serialize_str(name)?;
        self.value(value)
    }

    fn close(self) -> Result<(), Fault> {
        self.writer.0[self.at..][..size_of::<u64>()].copy_from_slice(&self.count.to_le_bytes());
        Ok(())
    }
}

macro_rules! lists {
    ($($trait:ident: $method:ident,)*) => {
        $(impl $trait for Parts<'_, '_> {
            type Ok = ();
            type Error = Fault;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
                self.value(value)
            }

            fn end(self) -> Result<(), Fault> {
                self.close()
            }
        })*
    };
}

lists! {
    SerializeSeq: serialize_element,
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field,
}

impl SerializeMap for Parts<'_, '_> {
    type Ok = ();
    type Error = Fault;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Fault> {
        key.serialize(&mut *self.writer)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
        self.value(value)
    }

    fn end(self) -> Result<(), Fault> {
        self.close()
    }
}

macro_rules! structs {
    ($($trait:ident,)*) => {
        $(impl $trait for Parts<'_, '_> {
            type Ok = ();
            type Error = Fault;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Fault> {
                self.field(name, value)
            }

            fn end(self) -> Result<(), Fault> {
                self.close()
            }
        })*
    };
}

structs! { SerializeStruct, SerializeStructVariant, }
