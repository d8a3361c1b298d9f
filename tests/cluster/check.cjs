// check.cjs FILE: each object of a stream of Kubernetes' manifests is what the schema of its kind asks for (npm's
// kubernetes-models), and has no field that the schema does not look at.
const { readFileSync } = require('fs');
const { loadAll } = require('js-yaml');

// The object, and which of its fields are looked at: their paths go from `unread`.
function watched(value, path, unread) {
  if (value === null || typeof value !== 'object') return value;
  const copy = Array.isArray(value) ? [] : {};
  for (const [name, child] of Object.entries(value)) {
    const at = `${path}.${name}`;
    unread.add(at);
    copy[name] = watched(child, at, unread);
  }
  return new Proxy(copy, {
    get(target, name) {
      unread.delete(`${path}.${String(name)}`);
      return target[name];
    },
  });
}

let wrong = 0, checked = 0;
const complain = (object, what) => {
  wrong += 1;
  console.log(`${object.kind} ${object.metadata.name}: ${what}`);
};
for (const object of loadAll(readFileSync(process.argv[2], 'utf8'))) {
  const [group, version] = object.apiVersion.includes('/') ? object.apiVersion.split('/') : ['', object.apiVersion];
  const Kind = require(`kubernetes-models/${group ? `${group}/` : ''}${version}`)[object.kind];
  const unread = new Set();
  try {
    Kind.prototype.validate.call(watched(object, '', unread));
  } catch (error) {
    complain(object, error.message);
  }
  // What a field that is unknown holds is not looked at either; maps of strings hold what they like.
  for (const field of unread) {
    const parent = field.slice(0, field.lastIndexOf('.'));
    if (!unread.has(parent)) complain(object, `no field ${field}`);
  }
  checked += 1;
}
console.log(wrong ? `${wrong} things are wrong` : `${checked} objects are what their schemas ask for`);
process.exit(wrong || !checked ? 1 : 0);
