//! The array header: round trips, and every kind of bad bytes.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn object(header: &ArrayHeader) -> Vec<u8> {
    let mut object = header.encode().unwrap();
    object.resize(header.object_bytes().unwrap() as usize, 9);
    object
}

#[test]
fn a_header_comes_back_as_it_was_with_aligned_elements() {
    for dtype in Dtype::ALL {
        for shape in [vec![], vec![5], vec![3, 0, 2], vec![1; NDIM_MAX]] {
            let library = if shape.is_empty() { Library::Torch } else { Library::Plain };
            let header = ArrayHeader { library, ..ArrayHeader::new(dtype, &shape).unwrap() };
            let object = object(&header);
            let (decoded, elements) = ArrayHeader::decode(&object).unwrap();
            assert_eq!(decoded, header);
            assert_eq!(elements.len() as u64, header.payload_bytes().unwrap());
            assert_eq!(header.payload_offset() % ALIGN_BYTES, 0);
        }
    }
}

#[test]
fn bad_headers_are_named() {
    let good = object(&ArrayHeader::new(Dtype::F32, &[2, 3]).unwrap());
    let spoiled = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        ArrayHeader::decode(&bytes).map(|_| ()).unwrap_err()
    };
    assert_eq!(spoiled(0, 0), ArrayError::NotAnArray);
    assert_eq!(spoiled(4, 2), ArrayError::Version(2));
    assert_eq!(spoiled(5, 99), ArrayError::Dtype(99));
    assert_eq!(spoiled(6, 7), ArrayError::ByteOrder(7));
    assert_eq!(spoiled(7, 200), ArrayError::Dimensions(200));
    assert_eq!(spoiled(12, 2), ArrayError::Library(2));
    assert_eq!(spoiled(8, 1), ArrayError::Inconsistent);
    assert_eq!(spoiled(23, 255), ArrayError::TooLarge);
    let cut = ArrayHeader::decode(&good[..good.len() - 1]).map(|_| ()).unwrap_err();
    assert_eq!(cut, ArrayError::Truncated { needed: 64 + 24, found: 64 + 23 });
    assert_eq!(ArrayHeader::new(Dtype::U8, &[1; 33]), Err(ArrayError::Dimensions(33)));
    assert_eq!(ArrayHeader::new(Dtype::F64, &[u64::MAX, 2]), Err(ArrayError::TooLarge));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_decode_or_fail_and_never_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..400),
        ours in any::<bool>(),
    ) {
        if ours && bytes.len() >= 8 {
            bytes[..5].copy_from_slice(b"BRAR\x01");
            bytes[5] %= 14;
            bytes[6] %= 2;
        }
        if let Ok((header, elements)) = ArrayHeader::decode(&bytes) {
            prop_assert_eq!(elements.len() as u64, header.payload_bytes().unwrap());
        }
    }
}
