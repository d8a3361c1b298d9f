// The notice of an error.

const notice = document.getElementById('trouble');
let told_at;  // when

// `of_cloud`: it is over when the cloud answers again. `raw`: in the words of whoever found it.
export function trouble(message, {of_cloud = false, raw = ''} = {}) {
  notice.hidden = !message;
  notice.textContent = message || '';
  notice.title = raw;
  notice.dataset.of = of_cloud ? 'cloud' : '';
  told_at = performance.now();
}
// An error in a sentence: that of a cloud that is away has its address.
export function tell_of({message}, url) {
  const of_cloud = url !== undefined && message.includes(`${url}: `) && /cannot connect|ended early|closed|reset|timed out/.test(message);
  trouble(of_cloud ? `The cloud at ${new URL(url).host} does not answer.` : message, {of_cloud, raw: of_cloud ? message : ''});
}
// Whether what is told is of a cloud that answers. The edge, which may have `lost` it, may find out later than whoever told of it.
export const trouble_is_over = (lost) => notice.dataset.of === 'cloud' && (lost || performance.now() - told_at > 5000);
