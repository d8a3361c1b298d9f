// The tab's disk in the browser's own file system (OPFS): a store as store.js describes it, which outlives the tab and is
// shared by all tabs of its origin. A file that is written is held by a lock until it has its name, so that a second tab finds
// it taken: a sync handle alone would be let go before. What a full disk does not take is left to memory, which is told.
const kMissing = 44, kBusy = 10, kFull = 51, kIo = 29;  // wasi-libc's ENOENT, EBUSY, ENOSPC and EIO
const kUsed = '/used';  // when files were last used, which OPFS does not keep: JSON by path

const number_of = ({name}) => ({NotFoundError: kMissing, TypeMismatchError: kMissing, NoModificationAllowedError: kBusy, QuotaExceededError: kFull})[name] ?? kIo;
// An error as the C library numbers it.
const numbered = async (work) => {
  try {
    return await work();
  } catch (error) {
    throw typeof error === 'number' ? error : number_of(error);
  }
};

// Holds a name among all tabs: gives the function that lets it go, or null where another one holds it.
const hold = (name) => new Promise((held, failed) => {
  navigator.locks.request(`splitcompute ${name}`, {ifAvailable: true}, (lock) => lock ? new Promise(held) : held(null)).catch(failed);
});

export class OpfsStore {
  readsLater = true;
  #root;
  #handles = new Map();  // number -> {file} for reading, or {sync, entry, release} for writing; {full}: a write failed
  #last = 0;
  #used = {};
  #telling;  // a write of #used that is to come
  #onFull;

  // Throws where the browser grants no disk: over http at an address of the network, or in a private window.
  static async open(onFull) {
    const store = new OpfsStore();
    store.#onFull = onFull;
    store.#root = await (await navigator.storage.getDirectory()).getDirectoryHandle('splitcompute', {create: true});
    try {
      store.#used = JSON.parse(await (await (await store.#entry(kUsed)).getFile()).text());
    } catch { /* none yet, or a torn one: files are then as old as their bytes */ }
    return store;
  }

  status(path) { return numbered(async () => this.#status(path, await (await this.#entry(path)).getFile())); }
  statusOf(handle) {
    const {path, file, sync} = this.#handles.get(handle);
    return file ? this.#status(path, file) : {bytes: sync.getSize(), onDisk: sync.getSize(), identity: handle, written: Date.now()};
  }
  open(path) { return numbered(async () => this.#handle({path, file: await (await this.#entry(path)).getFile()})); }
  take(path, bytes) {
    return numbered(async () => {
      const release = await hold(path);
      if (release === null) throw kBusy;
      let sync;
      try {
        const entry = await this.#entry(path, true);
        sync = await entry.createSyncAccessHandle();
        const resumed = sync.getSize() > 0, one = {path, entry, sync, release};
        this.#asFarAsItGoes(one, () => sync.truncate(bytes));
        return {handle: this.#handle(one), resumed: resumed && !one.full};
      } catch (error) {
        sync?.close();
        release();
        throw error;
      }
    });
  }
  async read(handle, offset, out) {
    const {file, sync} = this.#handles.get(handle);
    if (sync) return sync.read(out, {at: offset});
    return numbered(async () => {
      const bytes = new Uint8Array(await file.slice(offset, offset + out.length).arrayBuffer());
      out.set(bytes);
      return bytes.length;
    });
  }
  write(handle, offset, bytes) {
    const one = this.#handles.get(handle);
    this.#asFarAsItGoes(one, () => { if (one.sync.write(bytes, {at: offset}) !== bytes.length) throw kFull; });
  }
  commit(handle, path) {
    return numbered(async () => {
      const one = this.#handles.get(handle), {sync, entry, release} = one;
      try {
        this.#asFarAsItGoes(one, () => sync.flush());
        sync.close();
        this.#handles.delete(handle);
        if (one.full) await this.remove(one.path);
        else await this.#name(entry, path);
      } finally {
        release();
      }
    });
  }
  close(handle) {
    const one = this.#handles.get(handle);
    one?.sync?.close();
    one?.release?.();
    this.#handles.delete(handle);
  }
  // Whole or not at all.
  put(path, bytes) {
    const copy = bytes.slice();  // the module's memory may grow meanwhile
    return numbered(() => navigator.locks.request(`splitcompute ${path}`, async () => {
      const entry = await this.#entry(`${path}.new`, true), sync = await entry.createSyncAccessHandle();
      try {
        sync.truncate(0);
        if (sync.write(copy, {at: 0}) !== copy.length) throw kFull;
        sync.flush();
      } finally {
        sync.close();
      }
      await this.#name(entry, path);
    }));
  }
  remove(path) {
    return numbered(async () => {
      const [folder, name] = await this.#folder(path);
      await folder.removeEntry(name);
      delete this.#used[path];
    });
  }
  touch(path) {
    this.#used[path] = Date.now();
    this.#telling ??= setTimeout(() => {
      this.#telling = undefined;
      this.put(kUsed, new TextEncoder().encode(JSON.stringify(this.#used))).catch(() => {});
    }, 1000);
  }
  list(folder) {
    return numbered(async () => {
      const found = [];
      const walk = async (entry, path) => {
        for await (const [name, one] of entry.entries()) {
          const at = `${path}/${name}`;
          if (one.kind === 'directory') await walk(one, at);
          else await one.getFile().then((file) => found.push([at, this.#status(at, file)]), () => {});  // gone meanwhile
        }
      };
      const [inner, name] = await this.#folder(`${folder}/x`).catch(() => []);
      if (name) await walk(inner, folder);
      return found;
    });
  }

  // Gives up what a full disk holds of a file: nobody takes it for the whole one.
  #asFarAsItGoes(one, work) {
    if (one.full) return;
    try {
      work();
    } catch (error) {
      const number = typeof error === 'number' ? error : number_of(error);
      if (number !== kFull) throw number;
      one.full = true;
      one.sync.truncate(0);
      this.#onFull();
    }
  }
  // The folder of a path and the name in it.
  async #folder(path, create = false) {
    const names = path.split('/').filter(Boolean), name = names.pop();
    let folder = this.#root;
    for (const one of names) folder = await folder.getDirectoryHandle(one, {create});
    return [folder, name];
  }
  async #entry(path, create = false) {
    const [folder, name] = await this.#folder(path, create);
    return folder.getFileHandle(name, {create});
  }
  async #name(entry, path) {
    const [folder, name] = await this.#folder(path, true);
    if (entry.move) return entry.move(folder, name);
    const to = await (await folder.getFileHandle(name, {create: true})).createSyncAccessHandle();
    try {
      const from = await entry.getFile(), kPiece = 4 << 20;
      for (let at = 0; at < from.size; at += kPiece) to.write(await from.slice(at, at + kPiece).arrayBuffer(), {at});
      to.truncate(from.size);
      to.flush();
    } finally {
      to.close();
    }
    await entry.remove?.();
  }
  #handle(one) {
    this.#handles.set(++this.#last, one);
    return this.#last;
  }
  // Another file of this path has another identity.
  #status(path, {size, lastModified}) {
    return {bytes: size, onDisk: size, identity: lastModified, written: Math.max(lastModified, this.#used[path] ?? 0)};
  }
}
