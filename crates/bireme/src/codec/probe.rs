//! Asks a type's `Deserialize` whether the plain encoding can carry it.
//!
//! What a type reads cannot be seen while it is written: an untagged enum writes a bare number, and a `serde_json::Value`
//! anything. So each type is made to read invented values once per process, every variant of every enum. One that asks what
//! the bytes are, or that refuses invented values so that the rest of it stays unseen, is written self-describing.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::de::value::U32Deserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

/// Invented values that a type is given at most, one variant of each enum each time.
const ROUNDS_MAX: u32 = 256;
/// Parts of all these values together.
const PARTS_MAX: u32 = 100_000;
/// Values inside values: deeper ones are of types that were seen above.
const DEPTH_MAX: u32 = 48;
/// From here on lists are empty and options are none.
const DEPTH_FULL: u32 = 16;

thread_local! {
    static PROBING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread reads invented values: nothing outside of the value may be touched.
pub(crate) fn is_probing() -> bool {
    PROBING.get()
}

/// Whether the plain encoding can carry every value of the type, as far as its `Deserialize` shows.
pub(super) fn reads_plain<T: DeserializeOwned>() -> bool {
    let findings = Findings::default();
    let outer = PROBING.replace(true);
    let plain = explore::<T>(&findings);
    PROBING.set(outer);
    plain
}

fn explore<T: DeserializeOwned>(findings: &Findings) -> bool {
    for _ in 0..ROUNDS_MAX {
        findings.unseen.set(false);
        findings.cut.set(false);
        let read = catch_unwind(AssertUnwindSafe(|| T::deserialize(Probe { findings, depth: 0 }).is_ok()));
        let seen = read.unwrap_or(false) || findings.cut.get();
        if findings.asks.get() || !seen || findings.parts.get() >= PARTS_MAX {
            return false;
        }
        if !findings.unseen.get() {
            return true;
        }
    }
    false
}

#[derive(Default)]
struct Findings {
    /// It asked what the bytes are, or cannot be read by the number of a variant.
    asks: Cell<bool>,
    /// There are variants that it has not been given.
    unseen: Cell<bool>,
    /// A value was cut off at its greatest depth.
    cut: Cell<bool>,
    parts: Cell<u32>,
    /// The next variant of each enum, by its name and its list of names.
    next: RefCell<HashMap<(&'static str, *const &'static str), u32>>,
}

/// The reader of invented values.
#[derive(Clone, Copy)]
struct Probe<'p> {
    findings: &'p Findings,
    depth: u32,
}

#[derive(Debug)]
struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an invented value was refused")
    }
}

impl std::error::Error for Refused {}

impl de::Error for Refused {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Refused
    }
}

impl<'p> Probe<'p> {
    fn deeper(self) -> Result<Self, Refused> {
        let parts = self.findings.parts.get() + 1;
        self.findings.parts.set(parts);
        if self.depth >= DEPTH_MAX || parts >= PARTS_MAX {
            self.findings.cut.set(true);
            return Err(Refused);
        }
        Ok(Probe { depth: self.depth + 1, ..self })
    }

    fn asks<T>(self) -> Result<T, Refused> {
        self.findings.asks.set(true);
        Err(Refused)
    }

    fn parts(self, left: usize) -> Parts<'p> {
        Parts { probe: self, left }
    }

    /// One element, as long as that is not too deep.
    fn few(self) -> Parts<'p> {
        self.parts(usize::from(self.depth < DEPTH_FULL))
    }

    /// The variant that is next, all in turn.
    fn variant(self, name: &'static str, variants: &'static [&'static str]) -> u32 {
        let mut next = self.findings.next.borrow_mut();
        let next = next.entry((name, variants.as_ptr())).or_default();
        let count = u32::try_from(variants.len()).unwrap_or(u32::MAX).max(1);
        let chosen = *next % count;
        *next += 1;
        self.findings.unseen.set(self.findings.unseen.get() || *next < count);
        chosen
    }
}

macro_rules! invented {
    ($($method:ident: $visit:ident($($value:expr)?),)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
            visitor.$visit($($value)?)
        })*
    };
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Refused;

    fn is_human_readable(&self) -> bool {
        false
    }

    // Ones, since some types refuse zero; a text that is a number, since some types are numbers in a text.
    invented! {
        deserialize_bool: visit_bool(true),
        deserialize_u8: visit_u8(1),
        deserialize_u16: visit_u16(1),
        deserialize_u32: visit_u32(1),
        deserialize_u64: visit_u64(1),
        deserialize_u128: visit_u128(1),
        deserialize_i8: visit_i8(1),
        deserialize_i16: visit_i16(1),
        deserialize_i32: visit_i32(1),
        deserialize_i64: visit_i64(1),
        deserialize_i128: visit_i128(1),
        deserialize_f32: visit_f32(1.0),
        deserialize_f64: visit_f64(1.0),
        deserialize_char: visit_char('1'),
        deserialize_str: visit_borrowed_str("1"),
        deserialize_string: visit_borrowed_str("1"),
        deserialize_bytes: visit_borrowed_bytes(b"1"),
        deserialize_byte_buf: visit_borrowed_bytes(b"1"),
        deserialize_unit: visit_unit(),
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Refused> {
        self.asks()
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Refused> {
        self.asks()
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Refused> {
        self.asks()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        if self.depth < DEPTH_FULL { visitor.visit_some(self.deeper()?) } else { visitor.visit_none() }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_newtype_struct(self.deeper()?)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_seq(self.few())
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_seq(self.parts(len))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_seq(self.parts(len))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_map(self.few())
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_seq(self.parts(fields.len()))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        let index = self.variant(name, variants);
        visitor.visit_enum(Chosen { probe: self, index })
    }
}

struct Parts<'p> {
    probe: Probe<'p>,
    left: usize,
}

impl<'de> SeqAccess<'de> for Parts<'_> {
    type Error = Refused;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Refused> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(self.probe.deeper()?).map(Some)
    }
}

impl<'de> MapAccess<'de> for Parts<'_> {
    type Error = Refused;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Refused> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Refused> {
        seed.deserialize(self.probe.deeper()?)
    }
}

struct Chosen<'p> {
    probe: Probe<'p>,
    index: u32,
}

impl<'de, 'p> EnumAccess<'de> for Chosen<'p> {
    type Error = Refused;
    type Variant = Probe<'p>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Probe<'p>), Refused> {
        let index: U32Deserializer<Refused> = self.index.into_deserializer();
        match seed.deserialize(index) {
            Ok(variant) => Ok((variant, self.probe)),
            // More names than variants: some are aliases, and a number does not say which name was meant.
            Err(_) => self.probe.asks(),
        }
    }
}

impl<'de> VariantAccess<'de> for Probe<'_> {
    type Error = Refused;

    fn unit_variant(self) -> Result<(), Refused> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Refused> {
        seed.deserialize(self.deeper()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_seq(self.parts(len))
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_seq(self.parts(fields.len()))
    }
}
