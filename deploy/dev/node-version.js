// Ends with what to do where the Node that would run Keyfence is too old. Plain JavaScript, which an old one can read.
const NEEDED = 24;

if (Number(process.versions.node.split('.')[0]) < NEEDED) {
  console.error(
    `Keyfence runs on Node ${NEEDED} or newer; this is ${process.versions.node}. On Linux (x64, arm64) npm brings it, unless ` +
      `optional dependencies are left out: run npm ci. Elsewhere install it, on macOS with: brew install node@${NEEDED}`,
  );
  process.exit(1);
}
