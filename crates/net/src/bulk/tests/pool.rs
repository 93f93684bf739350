//! The pool: connections that are kept, replaced and forgotten; threads that end.

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, channel};

use super::*;

type TestPool = Pool<u8, Place>;

struct Bench {
    pool: TestPool,
    finished: Receiver<Finished<u8, Place>>,
    dials: Arc<AtomicUsize>,
    servers: Arc<Mutex<Vec<(Serving, TcpStream)>>>,
}

fn spawn(name: &str, body: Box<dyn FnOnce() + Send>) -> Result<(), String> {
    std::thread::Builder::new().name(name.into()).spawn(body).map(|_| ()).map_err(|error| error.to_string())
}

/// A pool whose peers all serve the same shelf; peer 9 cannot be reached.
fn bench(shelf: Shelf, threads_max: usize) -> Bench {
    let (tell, finished) = channel();
    let (dials, servers) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (dialled, started) = (Arc::clone(&dials), Arc::clone(&servers));
    let dial = move |peer: &u8| -> Result<Box<dyn Wire>, String> {
        if *peer == 9 {
            return Err("nobody is there".into());
        }
        dialled.fetch_add(1, Ordering::Relaxed);
        let (near, far) = sockets();
        let mut shelf = shelf.clone();
        let handle = far.try_clone().unwrap();
        let serving = std::thread::spawn(move || serve(line(far, &options()), &mut shelf, &|| false));
        started.lock().unwrap().push((serving, handle));
        Ok(Box::new(PlainWire::new(near).unwrap()))
    };
    let done = move |done| drop(tell.send(done));
    Bench { pool: Pool::new(options(), threads_max, spawn, dial, done), finished, dials, servers }
}

impl Bench {
    fn job(&self, peer: u8, key: u8, len: usize) -> Job<u8, Place> {
        Job { peer, key: vec![key], sink: Place::new(len), cancel: Arc::default() }
    }

    fn next(&self) -> Finished<u8, Place> {
        self.finished.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    fn dials(&self) -> usize {
        self.dials.load(Ordering::Relaxed)
    }
}

#[test]
fn a_connection_serves_one_object_after_another() {
    let bench = bench(Shelf([(1, Growing::whole(100_000))].into()), 4);
    for _ in 0..5 {
        bench.pool.start(bench.job(1, 1, 100_000)).unwrap();
        let done = bench.next();
        assert_eq!((done.peer, done.result, done.sink.watermark), (1, Ok(()), 100_000));
    }
    // Refused objects leave it usable too.
    bench.pool.start(bench.job(1, 7, 5)).unwrap();
    assert!(matches!(bench.next().result, Err(ReceiveError::Gone { .. })));
    bench.pool.start(bench.job(1, 1, 100_000)).unwrap();
    assert_eq!((bench.next().result, bench.dials()), (Ok(()), 1));
    bench.pool.forget(&1);
    bench.pool.start(bench.job(1, 1, 100_000)).unwrap();
    assert_eq!((bench.next().result, bench.dials()), (Ok(()), 2));
    bench.pool.stop();
}

#[test]
fn a_kept_connection_that_the_peer_has_closed_is_replaced() {
    let bench = bench(Shelf([(1, Growing::whole(1000))].into()), 4);
    bench.pool.start(bench.job(1, 1, 1000)).unwrap();
    assert_eq!(bench.next().result, Ok(()));
    let (serving, handle) = bench.servers.lock().unwrap().remove(0);
    handle.shutdown(std::net::Shutdown::Both).unwrap();
    serving.join().unwrap().1.unwrap();
    bench.pool.start(bench.job(1, 1, 1000)).unwrap();
    assert_eq!((bench.next().result, bench.dials()), (Ok(()), 2));
    bench.pool.stop();
}

#[test]
fn transfers_run_side_by_side_up_to_the_bound_and_each_is_told_of() {
    let slow = Growing::new(1000, 0);
    let bench = bench(Shelf([(1, slow.clone()), (2, Growing::whole(50_000))].into()), 2);
    bench.pool.start(bench.job(1, 1, 1000)).unwrap();
    bench.pool.start(bench.job(1, 2, 50_000)).unwrap();
    // The one that can go on does, past the one that waits.
    assert_eq!(bench.next().sink.watermark, 50_000);
    bench.pool.start(bench.job(9, 1, 1000)).unwrap();
    let unreachable = bench.next();
    assert!(unreachable.result.unwrap_err().to_string().contains("nobody is there"));
    let waiting = bench.job(2, 1, 1000);
    let cancel = Arc::clone(&waiting.cancel);
    bench.pool.start(waiting).unwrap();
    assert!(matches!(bench.pool.start(bench.job(2, 2, 50_000)), Err(PoolFull(_))));
    cancel.store(true, Ordering::Relaxed);
    let cancelled = bench.next();
    assert_eq!(cancelled.result, Err(ReceiveError::Broken { watermark: 0, why: Break::Stopped }));
    slow.become_ready(Ok(1000));
    assert_eq!(bench.next().result, Ok(()));
    bench.pool.stop();
}

#[test]
fn a_stop_ends_what_runs_and_every_thread() {
    let bench = bench(Shelf([(1, Growing::new(1000, 0))].into()), 4);
    bench.pool.start(bench.job(1, 1, 1000)).unwrap();
    bench.pool.start(bench.job(2, 1, 1000)).unwrap();
    bench.pool.stop();
    for _ in 0..2 {
        assert!(matches!(bench.next().result, Err(ReceiveError::Broken { why: Break::Stopped, .. })));
    }
    // Every thread has let go of the pool: what `done` holds goes with it.
    let Bench { pool, finished, .. } = bench;
    drop(pool);
    assert!(finished.recv_timeout(Duration::from_secs(20)).is_err());
    assert!(finished.try_recv().is_err());
}
