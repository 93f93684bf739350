//! Remote functions that one macro generates are different functions.
// expect: 1 2 3
// expect: 10 20

macro_rules! cases {
    ($($name:ident: $value:expr),*) => {
        $(
            fn $name() -> bireme::ObjectRef<i32> {
                #[bireme::remote]
                fn case() -> i32 {
                    $value
                }
                case::remote()
            }
        )*
    };
}

cases! { one: 1, two: 2, three: 3 }

mod left {
    #[bireme::remote]
    pub fn same() -> i32 {
        10
    }
}

mod right {
    #[bireme::remote]
    pub fn same() -> i32 {
        20
    }
}

fn main() -> bireme::Result<()> {
    let _context = bireme_programs::start()?;
    println!("{} {} {}", one().get()?, two().get()?, three().get()?);
    println!("{} {}", left::same::remote().get()?, right::same::remote().get()?);
    Ok(())
}
