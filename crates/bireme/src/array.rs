//! Arrays as values: element type and shape in a header (the store's, which all languages read), elements where they lie.

use std::fmt;

use bireme_runtime::array::{ArrayError, ArrayHeader, ByteOrder, Dtype};
use ndarray::{ArrayD, ArrayViewD, Dimension, IxDyn};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Bytes, Error, Result};

/// All element types; the numbers behind them are part of the format.
const DTYPES: [Dtype; 13] = [
    Dtype::U8,
    Dtype::U16,
    Dtype::U32,
    Dtype::U64,
    Dtype::I8,
    Dtype::I16,
    Dtype::I32,
    Dtype::I64,
    Dtype::F16,
    Dtype::Bf16,
    Dtype::F32,
    Dtype::F64,
    Dtype::Bool,
];

mod sealed {
    pub trait Sealed {}
}

/// A number that can be an element of an [`Array`].
pub trait Element: sealed::Sealed + bytemuck::Pod + Send + Sync {
    /// Its type as the header names it.
    const DTYPE: Dtype;
}

macro_rules! elements {
    ($($type:ty: $variant:ident),*) => {
        $(impl sealed::Sealed for $type {}
        impl Element for $type {
            const DTYPE: Dtype = Dtype::$variant;
        })*
    };
}

elements!(u8: U8, u16: U16, u32: U32, u64: U64, i8: I8, i16: I16, i32: I32, i64: I64, f32: F32, f64: F64);

/// An array of numbers of any shape, in row-major order.
///
/// As an argument, a result or a value given to [`put`](crate::put) its elements are copied once, straight into the
/// store; [`view`](Array::view) reads them there without a copy, in as many processes as want to.
///
/// ```
/// let array = bireme::Array::from(ndarray::array![[1.0_f32, 2.0], [3.0, 4.0]]);
/// assert_eq!(array.shape(), [2, 2]);
/// assert_eq!(array.view::<f32>()?[[1, 0]], 3.0);
/// assert!(array.view::<f64>().is_err());
/// # Ok::<(), bireme::Error>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct Array {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Bytes,
}

/// Elements that can be shown as bytes.
struct Elements<T>(Vec<T>);

impl<T: Element> AsRef<[u8]> for Elements<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

impl Array {
    /// An array of this shape from elements in row-major order.
    pub fn from_shape_vec<T: Element>(shape: &[usize], elements: Vec<T>) -> Result<Self> {
        let bytes = Bytes::from_owner(Elements(elements));
        Self::from_parts(T::DTYPE, shape.to_vec(), bytes)
    }

    /// Checks that the bytes are as many as type and shape ask for.
    fn from_parts(dtype: Dtype, shape: Vec<usize>, bytes: Bytes) -> Result<Self> {
        let array = Self { dtype, shape, bytes: aligned(dtype, bytes) };
        let needed = array.header().and_then(|header| header.payload_bytes()).map_err(bad)?;
        if needed != array.bytes.len() as u64 {
            let text = format!("{array:?} needs {needed} bytes, but {} were given", array.bytes.len());
            return Err(Error::BadArgument(text));
        }
        Ok(array)
    }

    /// What lies before the elements in an object.
    pub(crate) fn header(&self) -> Result<ArrayHeader, ArrayError> {
        let shape: Vec<u64> = self.shape.iter().map(|n| *n as u64).collect();
        ArrayHeader::new(self.dtype, &shape)
    }

    /// The array in an object; `object` is all of its bytes.
    pub(crate) fn from_object(object: &Bytes) -> Result<Self, ArrayError> {
        let (header, elements) = ArrayHeader::decode(object)?;
        if header.byte_order != ByteOrder::NATIVE {
            return Err(ArrayError::ByteOrder(header.byte_order as u8));
        }
        let start = header.payload_offset();
        let bytes = aligned(header.dtype, object.slice(start..start + elements.len()));
        // Decoding has checked that the shape fits into memory.
        let shape = header.shape.iter().map(|n| *n as usize).collect();
        Ok(Self { dtype: header.dtype, shape, bytes })
    }

    /// The type of the elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Elements along each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements as bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The elements where they lie, as an `ndarray` view. No copy.
    pub fn view<T: Element>(&self) -> Result<ArrayViewD<'_, T>> {
        let elements = self.as_slice()?;
        ArrayViewD::from_shape(IxDyn(&self.shape), elements).map_err(|error| Error::BadArgument(error.to_string()))
    }

    /// The elements where they lie, in row-major order. No copy.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        if self.dtype != T::DTYPE {
            let (expected, found) = (format!("array of {:?}", T::DTYPE), format!("array of {:?}", self.dtype));
            return Err(Error::TypeMismatch { expected, found });
        }
        bytemuck::try_cast_slice(&self.bytes).map_err(|error| Error::BadArgument(format!("{self:?}: {error}")))
    }

    /// A copy of one's own to write to.
    pub fn to_ndarray<T: Element>(&self) -> Result<ArrayD<T>> {
        Ok(self.view()?.to_owned())
    }
}

/// An array of the element type with this number in array objects.
pub(crate) fn of_number(dtype: u8, shape: &[usize], bytes: Bytes) -> Result<Array> {
    let dtype = DTYPES.into_iter().find(|known| *known as u8 == dtype);
    let dtype = dtype.ok_or_else(|| Error::BadArgument("an array has an unknown element type".to_owned()))?;
    Array::from_parts(dtype, shape.to_vec(), bytes)
}

fn bad(error: ArrayError) -> Error {
    Error::BadArgument(error.to_string())
}

/// Bytes that lie at an odd address (inside a message) are copied to a sound one; in the store none are.
fn aligned(dtype: Dtype, bytes: Bytes) -> Bytes {
    if (bytes.as_ptr() as usize).is_multiple_of(dtype.size_bytes()) {
        return bytes;
    }
    let mut words = vec![0_u64; bytes.len().div_ceil(8)];
    bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(&bytes);
    Bytes::from_owner(Elements(words)).slice(..bytes.len())
}

impl<T: Element, D: Dimension> From<ndarray::Array<T, D>> for Array {
    fn from(array: ndarray::Array<T, D>) -> Self {
        let shape = array.shape().to_vec();
        let elements = if array.is_standard_layout() {
            let len = array.len();
            let (mut elements, offset) = array.into_raw_vec_and_offset();
            elements.drain(..offset.unwrap_or(0));
            elements.truncate(len);
            elements
        } else {
            array.iter().copied().collect()
        };
        Self { dtype: T::DTYPE, shape, bytes: Bytes::from_owner(Elements(elements)) }
    }
}

impl<T: Element> From<Vec<T>> for Array {
    fn from(elements: Vec<T>) -> Self {
        let shape = vec![elements.len()];
        Self { dtype: T::DTYPE, shape, bytes: Bytes::from_owner(Elements(elements)) }
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({:?}, {:?})", self.dtype, self.shape)
    }
}

impl Serialize for Array {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.dtype as u8, &self.shape, &self.bytes).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Array {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let (code, shape, bytes) = <(u8, Vec<usize>, Bytes)>::deserialize(deserializer)?;
        if crate::codec::probe::is_probing() {
            return Ok(Array::from(Vec::<u8>::new()));
        }
        let dtype = DTYPES.into_iter().find(|dtype| *dtype as u8 == code);
        let dtype = dtype.ok_or_else(|| D::Error::custom("unknown element type of an array"))?;
        Array::from_parts(dtype, shape, bytes).map_err(D::Error::custom)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_array_that_is_not_row_major_is_put_in_order() {
        let array = ndarray::array![[1_i32, 2, 3], [4, 5, 6]];
        let turned = Array::from(array.reversed_axes());
        assert_eq!(turned.shape(), [3, 2]);
        assert_eq!(turned.as_slice::<i32>().unwrap(), [1, 4, 2, 5, 3, 6]);
    }

    #[test]
    fn a_shape_that_does_not_fit_the_elements_is_refused() {
        let error = Array::from_shape_vec(&[2, 2], vec![1.0_f64; 5]).unwrap_err();
        assert!(error.to_string().contains("[2, 2]"), "{error}");
        assert!(Array::from_shape_vec(&[usize::MAX, 2], vec![1_u8]).is_err());
    }

    #[test]
    fn elements_at_an_odd_address_can_still_be_viewed() {
        let source = Bytes::from([&[0_u8][..], &1.5_f64.to_ne_bytes(), &2.5_f64.to_ne_bytes()].concat());
        for start in 0..2 {
            let bytes = source.slice(start..start + 16);
            let array = Array::from_parts(Dtype::F64, vec![2], bytes).unwrap();
            assert_eq!(array.view::<f64>().unwrap().len(), 2);
        }
    }
}
