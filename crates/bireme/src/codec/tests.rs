use proptest::prelude::*;

use super::*;

pub(super) fn stored(packed: Packed) -> Fetched {
    let bytes: Vec<u8> = packed.encoded.parts().flatten().copied().collect();
    Fetched::Inline(bytes.into())
}

/// How far the head is from the alignment of what follows, and how long that is.
fn head_and_rest(encoded: &Encoded) -> (usize, usize) {
    (encoded.head.len() % PAYLOAD_ALIGN, encoded.parts().skip(1).map(<[u8]>::len).sum())
}

fn round_trip<T: Value>(value: T) -> T {
    unpack(&stored(pack(value).unwrap())).unwrap()
}

#[test]
fn values_bytes_and_arrays_come_back_as_they_went() {
    assert_eq!(round_trip((7_i64, "seven".to_owned())), (7, "seven".to_owned()));
    assert_eq!(round_trip(vec![1_u8, 2, 3]), [1, 2, 3]);
    for len in [0, 10, INLINE_BYTES_MAX * 2] {
        assert_eq!(round_trip(Bytes::from(vec![7; len])).len(), len);
    }
    let array = Array::from(ndarray::array![[1.5_f64, 2.5, 3.5]]);
    assert_eq!(round_trip(array.clone()), array);
    assert_eq!(round_trip(Some(array.clone())), Some(array));
}

#[test]
fn large_bytes_are_not_copied_into_the_head_and_start_aligned() {
    let packed = pack(Bytes::from(vec![1; INLINE_BYTES_MAX])).unwrap();
    assert_eq!(head_and_rest(&packed.encoded), (0, INLINE_BYTES_MAX));
    let packed = pack(Array::from(vec![1.0_f32; INLINE_BYTES_MAX])).unwrap();
    assert_eq!(head_and_rest(&packed.encoded), (0, 4 * INLINE_BYTES_MAX));
}

#[test]
fn reading_as_another_type_names_both() {
    let array = stored(pack(Array::from(vec![1_u8])).unwrap());
    let error = unpack::<String>(&array).unwrap_err().to_string();
    assert!(error.contains("String") && error.contains("Array"), "{error}");
    let error = unpack::<Array>(&stored(pack(7_i64).unwrap())).unwrap_err().to_string();
    assert!(error.contains("i64") && error.contains("Array"), "{error}");
    let error = unpack::<String>(&stored(pack(7_i64).unwrap())).unwrap_err();
    assert_eq!(error.to_string(), "expected a value of type alloc::string::String, found one of type i64");
}

#[test]
fn raw_bytes_of_another_language_are_read_and_its_own_values_refused() {
    let mut head = Vec::new();
    write_header(&mut head, TAG_BYTES, HEADER_BYTES, 0);
    head.extend_from_slice(b"from afar");
    let foreign = Fetched::Inline(head.into());
    assert_eq!(unpack::<Vec<u8>>(&foreign).unwrap(), b"from afar");
    assert_eq!(&unpack::<Bytes>(&foreign).unwrap()[..], b"from afar");
    assert!(unpack::<String>(&foreign).is_err());
    let error = unpack::<i64>(&Fetched::Inline(vec![TAG_PYTHON, 0].into())).unwrap_err().to_string();
    assert!(error.contains("i64") && error.contains("Python"), "{error}");
}

#[test]
fn a_value_that_serde_refuses_is_an_error_with_its_type() {
    #[derive(serde::Deserialize)]
    struct Secret;
    impl Serialize for Secret {
        fn serialize<S: serde::Serializer>(&self, _: S) -> std::result::Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("it stays here"))
        }
    }
    let error = pack(Secret).err().unwrap().to_string();
    assert!(error.contains("Secret") && error.contains("encoded") && error.contains("it stays here"), "{error}");
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), tag in prop_oneof![0u8..5, Just(TAG_ARRAY)], start in 0u32..200) {
        let object = [b"BRAR", &bytes[..]].concat();
        let _ = unpack::<Array>(&Fetched::Inline(object.into()));
        for print in [names::fingerprint::<Array>(), names::fingerprint::<Bytes>(), names::fingerprint::<Vec<String>>()] {
            let mut object = vec![tag, 0, 0, 0];
            object.extend(start.to_le_bytes());
            object.extend(print.to_le_bytes());
            object.extend(&bytes);
            let object = Fetched::Inline(object.into());
            let _ = unpack::<Array>(&object);
            let _ = unpack::<Bytes>(&object);
            let _ = unpack::<Vec<String>>(&object);
        }
    }
}
