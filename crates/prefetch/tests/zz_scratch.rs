use runahead_abi::record::*;
use runahead_abi::*;
use runahead_prefetch::*;
use std::sync::Arc;
use std::time::*;
struct N;
impl Sink for N {
    fn done(&self, _: Identity) {}
    fn forget(&self, _: Identity, _: u32) {}
    fn completed(&self, _: &Completion) {}
}
#[test]
fn speed() {
    let p = Prefetcher::new(Arc::new(N), Options::default());
    let t = Instant::now();
    for i in 0..50000u64 {
        let path = format!("/nonexistent/dir/{i}");
        let header = Header {
            kind: 3,
            run: 1,
            position: i,
            key: i + 1,
            offset: 0,
            length: 4096,
            flags: 0,
            path_len: path.len() as u32,
        };
        p.submit(&Record { kind: HintKind::Data, header, path: path.as_bytes() });
    }
    let a = t.elapsed();
    while p.queued() > 0 || p.stats().in_flight > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("submit {a:?} all {:?} {:?}", t.elapsed(), p.stats());
}
#[test]
fn cold() {
    let dir = "/tmp/pf-cold";
    std::fs::create_dir_all(dir).unwrap();
    for i in 0..3000 {
        let f = format!("{dir}/{i}");
        if !std::path::Path::new(&f).exists() {
            std::fs::write(&f, vec![1u8; 20000]).unwrap();
        }
    }
    rustix::fs::sync();
    let dropped = std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok();
    let p = Prefetcher::new(Arc::new(N), Options::default());
    let t = Instant::now();
    for i in 0..3000u64 {
        let path = format!("{dir}/{i}");
        let header = Header {
            kind: 3,
            run: 1,
            position: i,
            key: i + 1,
            offset: 0,
            length: 4096,
            flags: LENGTH_UNKNOWN,
            path_len: path.len() as u32,
        };
        p.submit(&Record { kind: HintKind::Data, header, path: path.as_bytes() });
    }
    let a = t.elapsed();
    while p.queued() > 0 || p.stats().in_flight > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("dropped {dropped} submit {a:?} all {:?} {:?}", t.elapsed(), p.stats());
    println!(
        "close {:?} {}",
        {
            let t = Instant::now();
            let n = p.close();
            (n, t.elapsed())
        },
        0
    );
    std::fs::write("/proc/sys/vm/drop_caches", "3").ok();
    let t = Instant::now();
    for i in 0..3000 {
        std::fs::read(format!("{dir}/{i}")).unwrap();
    }
    println!("serial cold {:?}", t.elapsed());
}
