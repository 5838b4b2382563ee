import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';

const SAID_MS = 2000;

/** A button that copies a text, and says so. */
export function CopyButton(props: {
  text: string;
  class?: string;
  label?: string;
  children: ComponentChildren;
}) {
  const [message, setMessage] = useState('');
  const copy = async () => {
    // The clipboard needs HTTPS and permission.
    const isCopied = await navigator.clipboard.writeText(props.text).then(
      () => true,
      () => false,
    );
    setMessage(isCopied ? 'Copied' : 'The browser does not allow copying');
    setTimeout(() => setMessage(''), SAID_MS);
  };
  return (
    <button
      type="button"
      class={props.class ?? ''}
      title={props.text}
      {...(props.label === undefined ? {} : { 'aria-label': props.label })}
      onClick={() => void copy()}
    >
      {props.children} {message && <small role="status">{message}</small>}
    </button>
  );
}

const CopySign = () => (
  <svg viewBox="0 0 12 12" fill="none" stroke="currentcolor" aria-hidden="true">
    <path d="M4.5 3.5h6v7h-6zM7.5 3.5v-2h-6v7h3" />
  </svg>
);

/** An id, which is copied by a click. */
export function CopyId({ id, of }: { id: string; of: string }) {
  return (
    <CopyButton class="copy" text={id} label={`Copy the id of ${of}, ${id}`}>
      <code>{id}</code> <CopySign />
    </CopyButton>
  );
}
