// The tab's disk, as common/base/web/file.cpp asks for it. This one is memory: it ends with the worker. A
// store has the functions of this class, each of which may be a promise; one that fails throws a
// number, the C library's errno.
const kMissing = 44, kBusy = 10, kIo = 29;  // wasi-libc's ENOENT, EBUSY and EIO

export class MemoryStore {
  #files = new Map();    // path -> {bytes, written (ms), identity}
  #handles = new Map();  // number -> {file, path, taken}
  #last = 0;
  #now = () => Date.now();

  // {bytes, onDisk, identity, written} of a path, or of what was opened.
  status(path) { return this.#status(this.#file(path)); }
  statusOf(handle) { return this.#status(this.#handles.get(handle).file); }
  open(path) { return this.#handle({file: this.#file(path), path}); }
  // A file to be written, of so many bytes, which one holds at a time. Returns its handle, and
  // whether something was in it.
  take(path, bytes) {
    for (const one of this.#handles.values()) if (one.taken && one.path === path) throw kBusy;
    let file = this.#files.get(path);
    const resumed = file !== undefined && file.bytes.length > 0;
    if (file?.bytes.length !== bytes) {
      const room = new Uint8Array(bytes);
      if (file) room.set(file.bytes.subarray(0, bytes));
      file = this.#make(path, room);
    }
    return {handle: this.#handle({file, path, taken: true}), resumed};
  }
  // Fills `out` as far as the file goes; returns how far.
  read(handle, offset, out) {
    const part = this.#handles.get(handle).file.bytes.subarray(offset, offset + out.length);
    out.set(part);
    return part.length;
  }
  write(handle, offset, bytes) { this.#handles.get(handle).file.bytes.set(bytes, offset); }
  // Gives a taken file its name, for good.
  commit(handle, path) {
    const one = this.#handles.get(handle);
    this.#files.delete(one.path);
    this.#files.set(path, one.file);
    one.file.written = this.#now();
  }
  close(handle) { this.#handles.delete(handle); }
  put(path, bytes) { this.#make(path, bytes.slice()); }
  remove(path) {
    this.#file(path);
    this.#files.delete(path);
  }
  touch(path) {
    const file = this.#files.get(path);
    if (file) file.written = this.#now();
  }
  // [path, status] of all files below a folder.
  list(folder) {
    return [...this.#files].filter(([path]) => path.startsWith(folder + '/'))
      .map(([path, file]) => [path, this.#status(file)]);
  }

  #file(path) {
    const file = this.#files.get(path);
    if (!file) throw kMissing;
    return file;
  }
  #make(path, bytes) {
    const file = {bytes, written: this.#now(), identity: ++this.#last};
    this.#files.set(path, file);
    return file;
  }
  #handle(one) {
    this.#handles.set(++this.#last, one);
    return this.#last;
  }
  #status({bytes, identity, written}) {
    return {bytes: bytes.length, onDisk: bytes.length, identity, written};
  }
}

// The imports of common/base/web/file.cpp over a store. Each answer goes to an address, as five numbers:
// the result (negative: -errno) and a status; who waits for that address is woken.
export class Files {
  #memory;
  #wake;
  #store;
  #lists = new Map();  // that address -> the result of list()
  open = 0;            // calls that have not answered

  constructor(memory, wake, store) {
    this.#memory = memory;
    this.#wake = wake;
    this.#store = store;
  }

  get imports() {
    const store = this.#store, text = (at, size) => this.#memory.text(at, size);
    const bytes = (at, size) => this.#memory.bytes(at, size);
    return {
      status: (told, path, size) => this.#call(told, () => store.status(text(path, size))),
      status_of: (told, file) => this.#call(told, () => store.statusOf(file)),
      open: (told, path, size) => this.#call(told, () => store.open(text(path, size))),
      take: (told, path, size, wanted) => this.#call(told, async () => {
        const {handle, resumed} = await store.take(text(path, size), wanted);
        return {result: handle, onDisk: resumed ? 1 : 0};
      }),
      read: (told, file, offset, out, size) => this.#call(told, () => this.#read(file, offset, out, size >>> 0)),
      write: (told, file, offset, from, size) => this.#call(told, () => store.write(file, offset, bytes(from, size))),
      commit: (told, file, path, size) => this.#call(told, () => store.commit(file, text(path, size))),
      close: (file) => store.close(file),
      put: (told, path, size, from, count) => this.#call(told, () => store.put(text(path, size), bytes(from, count))),
      remove: (told, path, size) => this.#call(told, () => store.remove(text(path, size))),
      touch: (path, size) => store.touch(text(path, size)),
      list: (told, path, size) => this.#call(told, async () => {
        const lines = (await store.list(text(path, size))).map(([file, status]) =>
          `${status.bytes} ${status.onDisk} ${status.identity} ${status.written} ${file}\n`);
        const list = new TextEncoder().encode(lines.join(''));
        this.#lists.set(told, list);
        return list.length;
      }),
      listed: (told, out) => {
        const list = this.#lists.get(told);
        this.#lists.delete(told);
        this.#memory.put(out, list.length, list);
      },
    };
  }

  // A store that reads later does so into memory of its own: the module's may grow meanwhile.
  #read(file, offset, out, size) {
    if (!this.#store.readsLater) return this.#store.read(file, offset, this.#memory.bytes(out, size));
    const room = new Uint8Array(size);
    return this.#store.read(file, offset, room).then((count) => {
      this.#memory.put(out, count, room);
      return count;
    });
  }

  #call(told, work) {
    const tell = (answer) => {
      const status = typeof answer === 'object' ? answer : {result: answer};
      this.#memory.numbers(told, 5).set([status.result ?? 0, status.bytes ?? 0, status.onDisk ?? 0,
        status.identity ?? 0, status.written ?? 0]);
    };
    const fail = (error) => tell(-(typeof error === 'number' ? error : kIo));
    let answer;
    try {
      answer = work();
    } catch (error) {
      return fail(error);
    }
    if (!(answer instanceof Promise)) return tell(answer);
    ++this.open;
    answer.then(tell, fail).finally(() => {
      --this.open;
      this.#wake(told);
    });
  }
}
