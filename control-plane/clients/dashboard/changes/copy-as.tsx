import { useState } from 'preact/hooks';
import { Dialog } from '../parts/dialogs.tsx';
import { type Call, commandOf, curlOf, scriptOf } from './commands.ts';

/** A button that shows the latest change as curl, as a command and as a script, each to copy. */
export function CopyAs({ call }: { call: Call }) {
  const [isOpen, setOpen] = useState(false);
  const base = new URL('../', document.baseURI).href;
  const command = commandOf(call);
  return (
    <>
      <button type="button" class="small" onClick={() => setOpen(true)}>
        Last change as code
      </button>
      {isOpen && (
        <Dialog title={call.operation} onClose={() => setOpen(false)}>
          <p class="quiet">
            What you did last here, for a program. It needs a root key in <code>KEYFENCE_ROOT_KEY</code>.
          </p>
          <Code of="curl" text={curlOf(call, base)} />
          {command !== undefined && <Code of="CLI" text={command} />}
          <Code of="JavaScript" text={scriptOf(call, base)} />
          <div class="row">
            <button type="button" onClick={() => setOpen(false)}>
              Close
            </button>
          </div>
        </Dialog>
      )}
    </>
  );
}

/** A piece of code with a button that copies it. */
export function Code({ of, text }: { of: string; text: string }) {
  const [notice, setNotice] = useState('');
  const copy = () =>
    navigator.clipboard.writeText(text).then(
      () => setNotice('Copied'),
      () => setNotice('The browser does not allow copying'),
    );
  return (
    <div class="code-block">
      <strong>{of}</strong>{' '}
      <button type="button" class="small" aria-label={`Copy the ${of} code`} onClick={() => void copy()}>
        Copy
      </button>{' '}
      <span role="status">{notice}</span>
      <pre>{text}</pre>
    </div>
  );
}
