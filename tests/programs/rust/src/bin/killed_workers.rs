//! Tasks whose worker dies run again, and each result is there once.
// expect: 12 results after 4 deaths

use std::path::PathBuf;

#[bireme::remote(retries = 2)]
fn flaky(folder: PathBuf, number: u32) -> u32 {
    let is_first = std::fs::File::create_new(folder.join(number.to_string())).is_ok();
    if is_first && number.is_multiple_of(3) {
        std::process::abort();
    }
    number
}

fn main() -> bireme::Result<()> {
    let _context = bireme_programs::start()?;
    let folder = std::env::temp_dir().join("flaky");
    std::fs::create_dir(&folder).expect("the temporary folder is empty");
    let results: Vec<_> = (0..12_u32).map(|number| flaky::remote(folder.clone(), number)).collect();
    let results = bireme::get_all(&results)?;
    std::fs::remove_dir_all(&folder).expect("the folder was made above");
    assert_eq!(results, (0..12).collect::<Vec<u32>>());
    println!("{} results after 4 deaths", results.len());
    Ok(())
}
