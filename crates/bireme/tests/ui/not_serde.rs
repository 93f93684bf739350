struct Secret;

#[bireme::remote]
fn keep(secret: Secret) {
    drop(secret);
}

fn main() {}
