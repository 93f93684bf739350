//! The header of array objects, read by Rust and Python alike.
//!
//! An array object is a header and, from the next multiple of 64 bytes on, the elements in row-major order. The header
//! is: magic `BRAR`, version, element type, byte order, number of dimensions (one byte each), the payload's offset
//! (u32), the library (u8), three bytes of zero, then one u64 per dimension; numbers in the header are little-endian whatever the byte
//! order of the elements. Decoding checks everything, so a view made from a decoded header stays inside its bytes.

/// The most dimensions an array may have.
pub const NDIM_MAX: usize = 32;
/// Payloads start at a multiple of this, counted from the start of the object, which is itself aligned so.
pub const ALIGN_BYTES: usize = 64;

const MAGIC: [u8; 4] = *b"BRAR";
const VERSION: u8 = 1;
const FIXED_BYTES: usize = 16;

/// Why bytes are not an array of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ArrayError {
    /// Another kind of object.
    #[error(
        "the object is not an array of numbers in C order and native byte order; \
         in Python `numpy.ascontiguousarray` makes one of another order, `astype` of another byte order"
    )]
    NotAnArray,
    /// Made by a later version.
    #[error("the array has header version {0}, and this program reads up to version 1: update it")]
    Version(u8),
    /// An element type that does not exist.
    #[error("the array has the unknown element type {0}")]
    Dtype(u8),
    /// A byte order that does not exist.
    #[error("the array has the unknown byte order {0}")]
    ByteOrder(u8),
    /// A library that does not exist.
    #[error("the array is of the unknown library {0}: update this program")]
    Library(u8),
    /// Too many dimensions.
    #[error("an array of {0} dimensions is beyond the limit of 32")]
    Dimensions(usize),
    /// The shape needs more bytes than an address can count.
    #[error("the shape of the array overflows: no memory could hold it")]
    TooLarge,
    /// Fewer bytes than header and shape say.
    #[error("the array is cut off: it needs {needed} bytes and has {found}")]
    Truncated {
        /// Bytes that header and shape call for.
        needed: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// The payload's offset contradicts the number of dimensions.
    #[error("the header of the array contradicts itself: the object was damaged")]
    Inconsistent,
}

/// The type of an array's elements. The numbers are part of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // The names say it all.
pub enum Dtype {
    U8 = 1,
    U16 = 2,
    U32 = 3,
    U64 = 4,
    I8 = 5,
    I16 = 6,
    I32 = 7,
    I64 = 8,
    F16 = 9,
    Bf16 = 10,
    F32 = 11,
    F64 = 12,
    Bool = 13,
}

impl Dtype {
    const ALL: [Self; 13] = [
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::F64,
        Self::Bool,
    ];

    /// The type with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|known| *known as u8 == number)
    }

    /// The size of one element.
    pub fn size_bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }
}

/// The byte order of an array's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little = 0,
    /// Most significant byte first.
    Big = 1,
}

impl ByteOrder {
    /// The order of this machine.
    pub const NATIVE: Self = if cfg!(target_endian = "big") { Self::Big } else { Self::Little };
}

/// Whose array a Python program gets when it reads one; the elements are the same. Its number is part of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Library {
    /// A plain array, numpy's in Python.
    #[default]
    Plain = 0,
    /// A tensor of torch.
    Torch = 1,
}

/// What an array is, without its elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ArrayHeader {
    /// The type of the elements.
    pub dtype: Dtype,
    /// Their byte order.
    pub byte_order: ByteOrder,
    /// The length of each dimension; empty for a single element.
    pub shape: Vec<u64>,
    /// Whose array it is in Python.
    pub library: Library,
}

impl ArrayHeader {
    /// A header for elements in this machine's byte order.
    pub fn new(dtype: Dtype, shape: &[u64]) -> Result<Self, ArrayError> {
        let header = Self { dtype, byte_order: ByteOrder::NATIVE, shape: shape.to_vec(), library: Library::Plain };
        header.object_bytes()?;
        Ok(header)
    }

    /// Where the elements start; also the length of [`ArrayHeader::encode`].
    pub fn payload_offset(&self) -> usize {
        payload_offset(self.shape.len())
    }

    /// The length of the elements in bytes.
    pub fn payload_bytes(&self) -> Result<u64, ArrayError> {
        let size = self.dtype.size_bytes() as u64;
        // A zero dimension makes the array empty; the others must still be countable, as in numpy.
        let bytes = self.shape.iter().filter(|n| **n != 0).try_fold(size, |bytes, n| bytes.checked_mul(*n));
        let bytes = bytes.filter(|bytes| *bytes <= i64::MAX as u64).ok_or(ArrayError::TooLarge)?;
        Ok(if self.shape.contains(&0) { 0 } else { bytes })
    }

    /// The length of the whole object: header, padding and elements.
    pub fn object_bytes(&self) -> Result<u64, ArrayError> {
        if self.shape.len() > NDIM_MAX {
            return Err(ArrayError::Dimensions(self.shape.len()));
        }
        self.payload_bytes()?.checked_add(self.payload_offset() as u64).ok_or(ArrayError::TooLarge)
    }

    /// The header and its padding; the elements follow.
    pub fn encode(&self) -> Result<Vec<u8>, ArrayError> {
        self.object_bytes()?;
        let offset = self.payload_offset();
        let mut bytes = Vec::with_capacity(offset);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[VERSION, self.dtype as u8, self.byte_order as u8, self.shape.len() as u8]);
        bytes.extend_from_slice(&(offset as u32).to_le_bytes());
        bytes.extend_from_slice(&[self.library as u8, 0, 0, 0]);
        for length in &self.shape {
            bytes.extend_from_slice(&length.to_le_bytes());
        }
        bytes.resize(offset, 0);
        Ok(bytes)
    }

    /// Reads the header of an array object and gives its elements with it.
    pub fn decode(object: &[u8]) -> Result<(Self, &[u8]), ArrayError> {
        let found = object.len() as u64;
        let header = Self::decode_front(object, found)?;
        let (needed, len) = (header.object_bytes()?, header.payload_bytes()? as usize);
        let payload = object.get(header.payload_offset()..).and_then(|payload| payload.get(..len));
        Ok((header, payload.ok_or(ArrayError::Truncated { needed, found })?))
    }

    /// Reads the header of an array object of `found` bytes of which only the first are here.
    pub fn decode_front(object: &[u8], found: u64) -> Result<Self, ArrayError> {
        if !object.starts_with(&MAGIC) {
            return Err(ArrayError::NotAnArray);
        }
        let Some(fixed) = object.first_chunk::<FIXED_BYTES>() else {
            return Err(ArrayError::Truncated { needed: FIXED_BYTES as u64, found });
        };
        let [version, dtype, byte_order, ndim] = [fixed[4], fixed[5], fixed[6], fixed[7]];
        if version != VERSION {
            return Err(ArrayError::Version(version));
        }
        let dtype = Dtype::from_number(dtype).ok_or(ArrayError::Dtype(dtype))?;
        let byte_order = [ByteOrder::Little, ByteOrder::Big]
            .into_iter()
            .find(|known| *known as u8 == byte_order)
            .ok_or(ArrayError::ByteOrder(byte_order))?;
        let library = [Library::Plain, Library::Torch]
            .into_iter()
            .find(|known| *known as u8 == fixed[12])
            .ok_or(ArrayError::Library(fixed[12]))?;
        let ndim = usize::from(ndim);
        if ndim > NDIM_MAX {
            return Err(ArrayError::Dimensions(ndim));
        }
        let offset = payload_offset(ndim);
        if u32::from_le_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]) as usize != offset {
            return Err(ArrayError::Inconsistent);
        }
        let Some(header) = object.get(FIXED_BYTES..offset) else {
            return Err(ArrayError::Truncated { needed: offset as u64, found });
        };
        let shape = header.as_chunks::<8>().0.iter().take(ndim).map(|length| u64::from_le_bytes(*length)).collect();
        let header = Self { dtype, byte_order, shape, library };
        let needed = header.object_bytes()?;
        if needed > found { Err(ArrayError::Truncated { needed, found }) } else { Ok(header) }
    }
}

fn payload_offset(ndim: usize) -> usize {
    (FIXED_BYTES + ndim * 8).next_multiple_of(ALIGN_BYTES)
}

#[cfg(test)]
mod tests;
