//! Writes values in postcard, and refuses those that need names or kinds.

use postcard::ser_flavors::Flavor;
use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::super::fault::Fault;
use super::super::shape::{Kind, Names, Shape};

/// Appends a value and its shape.
pub(in super::super) fn encode<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) -> Result<(), Fault> {
    let mut writer = Writer { inner: postcard::Serializer { output: Append(out) }, shape: Shape::default() };
    value.serialize(&mut writer)?;
    let shape = writer.shape.to_bytes();
    out.extend_from_slice(&shape);
    Ok(())
}

/// Appends to a vector; postcard's own flavour for that starts with a new one.
struct Append<'a>(&'a mut Vec<u8>);

impl Flavor for Append<'_> {
    type Output = ();

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

struct Writer<'a> {
    inner: postcard::Serializer<Append<'a>>,
    shape: Shape,
}

impl Writer<'_> {
    fn len(&self) -> usize {
        self.inner.output.0.len()
    }

    #[inline]
    fn variant(&mut self, name: &'static str, index: u32, variant: &'static str) -> Result<(), Fault> {
        self.shape.note(Kind::Variant);
        self.shape.note_names(Names::default().and(variant));
        (&mut self.inner).serialize_unit_variant(name, index, variant).map_err(Fault::other)
    }
}

impl<'w, 'a> Writer<'a> {
    #[inline]
    fn parts(&'w mut self, kind: Kind) -> Parts<'w, 'a> {
        Parts { writer: self, kind, count: 0, names: Names::default() }
    }

    /// A list or a map, whose length comes first.
    #[inline]
    fn counted(&'w mut self, kind: Kind, len: Option<usize>) -> Result<Counted<'w, 'a>, Fault> {
        let left = len.ok_or_else(|| Fault::not_plain("it has a part of unknown length"))?;
        self.shape.note(kind);
        (&mut self.inner).serialize_seq(len).map_err(Fault::other)?;
        Ok(Counted { writer: self, left })
    }
}

macro_rules! simple {
    ($($method:ident($type:ty): $kind:ident,)*) => {
        $(#[inline]
        fn $method(self, value: $type) -> Result<(), Fault> {
            self.shape.note(Kind::$kind);
            (&mut self.inner).$method(value).map_err(Fault::other)
        })*
    };
}

impl<'w, 'a> Serializer for &'w mut Writer<'a> {
    type Ok = ();
    type Error = Fault;
    type SerializeSeq = Counted<'w, 'a>;
    type SerializeTuple = Parts<'w, 'a>;
    type SerializeTupleStruct = Parts<'w, 'a>;
    type SerializeTupleVariant = Parts<'w, 'a>;
    type SerializeMap = Counted<'w, 'a>;
    type SerializeStruct = Parts<'w, 'a>;
    type SerializeStructVariant = Parts<'w, 'a>;

    fn is_human_readable(&self) -> bool {
        false
    }

    simple! {
        serialize_bool(bool): Bool,
        serialize_u8(u8): U8,
        serialize_u16(u16): U16,
        serialize_u32(u32): U32,
        serialize_u64(u64): U64,
        serialize_u128(u128): U128,
        serialize_i8(i8): I8,
        serialize_i16(i16): I16,
        serialize_i32(i32): I32,
        serialize_i64(i64): I64,
        serialize_i128(i128): I128,
        serialize_f32(f32): F32,
        serialize_f64(f64): F64,
        serialize_char(char): Char,
        serialize_str(&str): Text,
        serialize_bytes(&[u8]): Bytes,
    }

    #[inline]
    fn serialize_none(self) -> Result<(), Fault> {
        self.shape.note(Kind::Option);
        (&mut self.inner).serialize_none().map_err(Fault::other)
    }

    #[inline]
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Fault> {
        self.shape.note(Kind::Option);
        (&mut self.inner).serialize_some(&()).map_err(Fault::other)?;
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Fault> {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Fault> {
        Ok(())
    }

    #[inline]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Fault> {
        value.serialize(self)
    }

    #[inline]
    fn serialize_unit_variant(self, name: &'static str, index: u32, variant: &'static str) -> Result<(), Fault> {
        self.variant(name, index, variant)
    }

    #[inline]
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Fault> {
        self.variant(name, index, variant)?;
        value.serialize(self)
    }

    #[inline]
    fn serialize_seq(self, len: Option<usize>) -> Result<Counted<'w, 'a>, Fault> {
        self.counted(Kind::List, len)
    }

    #[inline]
    fn serialize_tuple(self, _: usize) -> Result<Parts<'w, 'a>, Fault> {
        Ok(self.parts(Kind::Tuple))
    }

    #[inline]
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Parts<'w, 'a>, Fault> {
        Ok(self.parts(Kind::Tuple))
    }

    #[inline]
    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts<'w, 'a>, Fault> {
        self.variant(name, index, variant)?;
        Ok(self.parts(Kind::Tuple))
    }

    #[inline]
    fn serialize_map(self, len: Option<usize>) -> Result<Counted<'w, 'a>, Fault> {
        self.counted(Kind::Map, len)
    }

    #[inline]
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Parts<'w, 'a>, Fault> {
        Ok(self.parts(Kind::Struct))
    }

    #[inline]
    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts<'w, 'a>, Fault> {
        self.variant(name, index, variant)?;
        Ok(self.parts(Kind::Struct))
    }
}

/// A tuple or struct that is being written: the reader knows how many parts there are.
struct Parts<'w, 'a> {
    writer: &'w mut Writer<'a>,
    kind: Kind,
    /// Parts that took bytes. One that takes none need not be there: the reader has nothing to miss.
    count: u32,
    names: Names,
}

impl Parts<'_, '_> {
    #[inline]
    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
        let before = self.writer.len();
        value.serialize(&mut *self.writer)?;
        if self.writer.len() > before {
            self.count += 1;
            self.writer.shape.next_part();
        }
        Ok(())
    }

    #[inline]
    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Fault> {
        self.names = self.names.and(name);
        self.value(value)
    }

    #[inline]
    fn close(self) -> Result<(), Fault> {
        self.writer.shape.note_parts(self.kind, self.count);
        if let Kind::Struct = self.kind {
            self.writer.shape.note_names(self.names);
        }
        Ok(())
    }
}

macro_rules! tuples {
    ($($trait:ident: $method:ident,)*) => {
        $(impl $trait for Parts<'_, '_> {
            type Ok = ();
            type Error = Fault;

            #[inline]
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
                self.value(value)
            }

            #[inline]
            fn end(self) -> Result<(), Fault> {
                self.close()
            }
        })*
    };
}

tuples! {
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field,
}

macro_rules! structs {
    ($($trait:ident,)*) => {
        $(impl $trait for Parts<'_, '_> {
            type Ok = ();
            type Error = Fault;

            #[inline]
            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Fault> {
                self.field(name, value)
            }

            fn skip_field(&mut self, _: &'static str) -> Result<(), Fault> {
                Err(Fault::not_plain("it leaves out a field"))
            }

            #[inline]
            fn end(self) -> Result<(), Fault> {
                self.close()
            }
        })*
    };
}

structs! { SerializeStruct, SerializeStructVariant, }

/// A list or map that is being written.
struct Counted<'w, 'a> {
    writer: &'w mut Writer<'a>,
    left: usize,
}

impl Counted<'_, '_> {
    #[inline]
    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
        self.left = self.left.checked_sub(1).ok_or_else(|| Fault::not_plain("it has more elements than it said"))?;
        value.serialize(&mut *self.writer)
    }

    #[inline]
    fn close(self) -> Result<(), Fault> {
        if self.left > 0 { Err(Fault::not_plain("it has fewer elements than it said")) } else { Ok(()) }
    }
}

impl SerializeSeq for Counted<'_, '_> {
    type Ok = ();
    type Error = Fault;

    #[inline]
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
        self.value(value)
    }

    #[inline]
    fn end(self) -> Result<(), Fault> {
        self.close()
    }
}

impl SerializeMap for Counted<'_, '_> {
    type Ok = ();
    type Error = Fault;

    #[inline]
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Fault> {
        key.serialize(&mut *self.writer)
    }

    #[inline]
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
        self.value(value)
    }

    #[inline]
    fn end(self) -> Result<(), Fault> {
        self.close()
    }
}
