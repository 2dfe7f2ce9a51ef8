// SPDX-License-Identifier: GPL-2.0
/*
 * espnic: a simulated network card with IPsec (ESP) offload, over any other Ethernet device. It is
 * test equipment: it shows that software drives a card by the kernel's xfrm offload framework as it
 * should. It is not fast, and protects nobody's traffic.
 *
 *	ip link add p0 link LOWER type espnic
 *
 * It takes and refuses what mlx5 does. "crypto": the kernel builds ESP, the card does AES-GCM.
 * "packet": the card has policies and associations of its own, and does all of ESP in tunnel mode.
 * Everything else passes both ways as it is.
 */

#include <crypto/aead.h>
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/scatterlist.h>
#include <net/dsfield.h>
#include <net/esp.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/rtnetlink.h>
#include <net/xfrm.h>

#define MODE_CRYPTO	1
#define MODE_PACKET	2
#define IV_LEN		8
#define ICV_LEN		16
#define ESP_HEAD	(sizeof(struct ip_esp_hdr) + IV_LEN)
#define ESP_MIN		(ESP_HEAD + 4 + ICV_LEN)
#define WINDOW		256

static unsigned int modes = MODE_CRYPTO | MODE_PACKET;
module_param(modes, uint, 0644);
MODULE_PARM_DESC(modes, "what the card can do: 1 crypto, 2 packet, 3 both");

static bool exact;
module_param(exact, bool, 0644);
MODULE_PARM_DESC(exact, "policies match single addresses, as mlx5's did before Linux 6.15");

static unsigned int sa_max = 64;
module_param(sa_max, uint, 0644);
MODULE_PARM_DESC(sa_max, "associations that fit into the card");

static bool broken;
module_param(broken, bool, 0644);
MODULE_PARM_DESC(broken, "a fault: packets of a policy leave in clear, and nothing counts them");

/* An association in the card. */
struct sa {
	struct list_head list;
	struct xfrm_state *x;
	struct crypto_aead *aead;
	struct aead_request *request;
	u64 seq;		/* out: the last one used; in: the highest one accepted */
	DECLARE_BITMAP(seen, WINDOW);	/* bit n: seq - n came */
	u64 packets, bytes, told_packets, told_bytes;
	u64 packets_max, bytes_max;	/* of the day it came: mlx5 hears of no change either */
	u32 replayed, forged;
	u8 aad[12 + IV_LEN];	/* here, since a stack cannot be in a scatterlist */
	u8 iv[IV_LEN];
};

/* A policy in the card. */
struct rule {
	struct list_head list;
	struct xfrm_selector sel;
	u32 priority, reqid;
	u8 dir, action;
};

struct nic {
	struct net_device *dev, *lower;
	netdevice_tracker lower_tracker;
	spinlock_t lock;	/* all below; inside of a state's lock, never around it */
	struct list_head sas, rules;	/* the newest association first, the oldest policy first */
	unsigned int sa_count;
	u64 tx_sealed, rx_opened, tx_clear, dropped;
};

/* Where the ESP header of a packet is. */
struct outer {
	xfrm_address_t daddr;
	u16 family;
	unsigned int esp, end;	/* from the IP header on */
};

static bool esn(const struct sa *sa)
{
	return sa->x->props.flags & XFRM_STATE_ESN;
}

static bool packet_mode(const struct sa *sa)
{
	return sa->x->xso.type == XFRM_DEV_OFFLOAD_PACKET;
}

static void count_drop(struct nic *nic)
{
	spin_lock_bh(&nic->lock);
	nic->dropped++;
	spin_unlock_bh(&nic->lock);
}

/* AES-GCM over one whole ESP packet in place; on the way out the IV is the sequence number. */
static int crypt(struct sa *sa, u8 *esp, unsigned int len, u64 seq, bool seal)
{
	unsigned int aad_len = esn(sa) ? 12 : 8, text = len - ESP_HEAD;
	struct scatterlist sg[2];

	if (seal)
		put_unaligned_be64(seq, esp + 8);
	memcpy(sa->iv, esp + 8, IV_LEN);
	memcpy(sa->aad, esp, 4);
	if (esn(sa))
		put_unaligned_be32(seq >> 32, sa->aad + 4);
	memcpy(sa->aad + aad_len - 4, esp + 4, 4);
	memcpy(sa->aad + aad_len, sa->iv, IV_LEN);
	sg_init_table(sg, 2);
	sg_set_buf(&sg[0], sa->aad, aad_len + IV_LEN);
	sg_set_buf(&sg[1], esp + ESP_HEAD, text);
	aead_request_set_callback(sa->request, 0, NULL, NULL);
	aead_request_set_ad(sa->request, aad_len + IV_LEN);
	aead_request_set_crypt(sa->request, sg, sg, seal ? text - ICV_LEN : text, sa->iv);
	return seal ? crypto_aead_encrypt(sa->request) : crypto_aead_decrypt(sa->request);
}

/* A frame that is ours alone, in one piece. */
static struct sk_buff *own(struct sk_buff *skb)
{
	skb = skb_unshare(skb, GFP_ATOMIC);
	if (skb && skb_linearize(skb)) {
		kfree_skb(skb);
		return NULL;
	}
	return skb;
}

/* Finds ESP right behind an IP header that is not a fragment's. */
static bool parse_outer(struct sk_buff *skb, unsigned int at, struct outer *outer)
{
	struct ipv6hdr *ip6;
	struct iphdr *ip4;

	memset(outer, 0, sizeof(*outer));
	if (skb->protocol == htons(ETH_P_IP)) {
		if (!pskb_may_pull(skb, at + sizeof(*ip4)))
			return false;
		ip4 = (struct iphdr *)(skb->data + at);
		if (ip4->version != 4 || ip4->ihl < 5 || ip4->protocol != IPPROTO_ESP ||
		    ip_is_fragment(ip4))
			return false;
		outer->family = AF_INET;
		outer->daddr.a4 = ip4->daddr;
		outer->esp = ip4->ihl * 4;
		outer->end = ntohs(ip4->tot_len);
	} else if (skb->protocol == htons(ETH_P_IPV6)) {
		if (!pskb_may_pull(skb, at + sizeof(*ip6)))
			return false;
		ip6 = (struct ipv6hdr *)(skb->data + at);
		if (ip6->version != 6 || ip6->nexthdr != IPPROTO_ESP)
			return false;
		outer->family = AF_INET6;
		outer->daddr.in6 = ip6->daddr;
		outer->esp = sizeof(*ip6);
		outer->end = sizeof(*ip6) + ntohs(ip6->payload_len);
	} else {
		return false;
	}
	return outer->end >= outer->esp + ESP_MIN && skb->len >= at + outer->end &&
	       pskb_may_pull(skb, at + outer->esp + ESP_HEAD);
}

/* ---- Out ---- */

static bool prefix_matches(const xfrm_address_t *addr, const xfrm_address_t *net, u8 len,
			   u16 family)
{
	if (exact)
		return xfrm_addr_any(net, family) || xfrm_addr_equal(addr, net, family);
	return family == AF_INET ? addr4_match(addr->a4, net->a4, len)
				 : addr_match(addr, net, len);
}

/* The most important policy that the IP packet in a frame meets. */
static struct rule *match(struct nic *nic, struct sk_buff *skb, u16 family)
{
	const u8 *ip = skb->data + ETH_HLEN, *ports = NULL;
	struct rule *rule, *best = NULL;
	xfrm_address_t saddr, daddr;
	unsigned int len;
	u8 proto;

	if (family == AF_INET) {
		const struct iphdr *ip4 = (const struct iphdr *)ip;

		saddr.a4 = ip4->saddr;
		daddr.a4 = ip4->daddr;
		proto = ip4->protocol;
		len = ip4->ihl * 4;
		if (ip4->frag_off & htons(IP_OFFSET))
			len = skb->len;
	} else {
		const struct ipv6hdr *ip6 = (const struct ipv6hdr *)ip;

		saddr.in6 = ip6->saddr;
		daddr.in6 = ip6->daddr;
		proto = ip6->nexthdr;
		len = sizeof(*ip6);
	}
	if (skb->len >= ETH_HLEN + len + 4)
		ports = ip + len;
	list_for_each_entry(rule, &nic->rules, list) {
		const struct xfrm_selector *sel = &rule->sel;

		if (rule->dir != XFRM_DEV_OFFLOAD_OUT || sel->family != family ||
		    (best && best->priority <= rule->priority) ||
		    !prefix_matches(&saddr, &sel->saddr, sel->prefixlen_s, family) ||
		    !prefix_matches(&daddr, &sel->daddr, sel->prefixlen_d, family) ||
		    (sel->proto && sel->proto != proto))
			continue;
		if ((sel->sport_mask || sel->dport_mask) &&
		    (!ports ||
		     ((get_unaligned((__be16 *)ports) ^ sel->sport) & sel->sport_mask) ||
		     ((get_unaligned((__be16 *)(ports + 2)) ^ sel->dport) & sel->dport_mask)))
			continue;
		best = rule;
	}
	return best;
}

/* Makes the ESP packet around the IP packet in a frame, all but the Ethernet header's addresses. */
static int wrap(struct nic *nic, struct sa *sa, struct sk_buff *skb, u16 inner_family)
{
	unsigned int inner = skb->len - ETH_HLEN, pad = -(inner + 2) & 3, i;
	bool v4 = sa->x->props.family == AF_INET;
	unsigned int outer = v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	unsigned int esp_len = ESP_HEAD + inner + pad + 2 + ICV_LEN;
	struct ip_esp_hdr *esp;
	u8 dscp, *tail;

	if (outer + esp_len > READ_ONCE(nic->lower->mtu) ||
	    sa->packets >= sa->packets_max || sa->bytes >= sa->bytes_max ||
	    (!esn(sa) && sa->seq >= U32_MAX) || sa->seq == U64_MAX)
		return -EMSGSIZE;
	if (pskb_expand_head(skb, outer + ESP_HEAD, pad + 2 + ICV_LEN, GFP_ATOMIC))
		return -ENOMEM;
	dscp = inner_family == AF_INET
		? ipv4_get_dsfield((struct iphdr *)(skb->data + ETH_HLEN))
		: ipv6_get_dsfield((struct ipv6hdr *)(skb->data + ETH_HLEN));
	dscp &= INET_DSCP_MASK;
	tail = skb_put(skb, pad + 2 + ICV_LEN);
	for (i = 0; i < pad; i++)
		tail[i] = i + 1;
	tail[pad] = pad;
	tail[pad + 1] = inner_family == AF_INET ? IPPROTO_IPIP : IPPROTO_IPV6;

	skb_push(skb, outer + ESP_HEAD);
	memmove(skb->data, skb->data + outer + ESP_HEAD, 2 * ETH_ALEN);
	skb->protocol = v4 ? htons(ETH_P_IP) : htons(ETH_P_IPV6);
	((struct ethhdr *)skb->data)->h_proto = skb->protocol;
	skb_reset_mac_header(skb);
	skb_set_network_header(skb, ETH_HLEN);
	skb_set_transport_header(skb, ETH_HLEN + outer);
	if (v4) {
		struct iphdr *ip4 = ip_hdr(skb);

		*ip4 = (struct iphdr) {
			.version = 4, .ihl = 5, .tos = dscp, .ttl = 64, .protocol = IPPROTO_ESP,
			.tot_len = htons(outer + esp_len), .frag_off = htons(IP_DF),
			.saddr = sa->x->props.saddr.a4, .daddr = sa->x->id.daddr.a4,
		};
		ip_send_check(ip4);
	} else {
		struct ipv6hdr *ip6 = ipv6_hdr(skb);

		*ip6 = (struct ipv6hdr) {
			.payload_len = htons(esp_len), .nexthdr = IPPROTO_ESP, .hop_limit = 64,
			.saddr = sa->x->props.saddr.in6, .daddr = sa->x->id.daddr.in6,
		};
		ip6_flow_hdr(ip6, dscp, 0);
	}
	esp = ip_esp_hdr(skb);
	esp->spi = sa->x->id.spi;
	esp->seq_no = htonl(++sa->seq);
	if (crypt(sa, (u8 *)esp, esp_len, sa->seq, true))
		return -EIO;
	sa->packets++;
	sa->bytes += inner;
	return 0;
}

/*
 * The way to an outer address. Packets that are forwarded into a tunnel of packet mode come with
 * the Ethernet header with which they were received: the kernel leaves it to the card.
 */
static bool next_hop(struct net_device *dev, u16 family, const xfrm_address_t *daddr, u8 *mac)
{
	struct dst_entry *dst;
	struct neighbour *n;
	bool known;

	if (family == AF_INET) {
		struct flowi4 fl4 = { .daddr = daddr->a4, .flowi4_oif = dev->ifindex };
		struct rtable *rt = ip_route_output_key(dev_net(dev), &fl4);

		if (IS_ERR(rt))
			return false;
		dst = &rt->dst;
	} else {
		struct flowi6 fl6 = { .daddr = daddr->in6, .flowi6_oif = dev->ifindex };

		dst = ip6_route_output(dev_net(dev), NULL, &fl6);
	}
	n = dst->error ? NULL : dst_neigh_lookup(dst, daddr);
	dst_release(dst);
	if (!n)
		return false;
	known = !neigh_event_send(n, NULL);
	if (known)
		neigh_ha_snapshot(mac, n, dev);
	neigh_release(n);
	return known;
}

static netdev_tx_t pass_down(struct nic *nic, struct sk_buff *skb)
{
	unsigned int len = skb->len;
	int err;

	secpath_reset(skb);
	skb->dev = nic->lower;
	err = dev_queue_xmit(skb);
	if (net_xmit_eval(err))
		dev_core_stats_tx_dropped_inc(nic->dev);
	else
		dev_sw_netstats_tx_add(nic->dev, 1, len);
	return NETDEV_TX_OK;
}

static netdev_tx_t refuse(struct nic *nic, struct sk_buff *skb)
{
	count_drop(nic);
	dev_core_stats_tx_dropped_inc(nic->dev);
	kfree_skb(skb);
	return NETDEV_TX_OK;
}

/* The kernel has made an ESP packet, without IV and cipher. */
static netdev_tx_t xmit_crypto(struct nic *nic, struct sk_buff *skb, struct xfrm_state *x)
{
	struct xfrm_offload *xo;
	int err = -ENOENT;
	struct sa *sa;
	u64 seq;

	skb = own(skb);
	if (!skb) {
		count_drop(nic);
		return NETDEV_TX_OK;
	}
	xo = xfrm_offload(skb);
	seq = (u64)xo->seq.hi << 32 | xo->seq.low;
	spin_lock_bh(&nic->lock);
	list_for_each_entry(sa, &nic->sas, list) {
		u8 *esp = skb_transport_header(skb);
		unsigned int len = skb_tail_pointer(skb) - esp;

		if (sa->x != x)
			continue;
		err = len < ESP_MIN ? -EINVAL : crypt(sa, esp, len, seq, true);
		break;
	}
	if (!err)
		nic->tx_sealed++;
	spin_unlock_bh(&nic->lock);
	return err ? refuse(nic, skb) : pass_down(nic, skb);
}

static netdev_tx_t espnic_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct nic *nic = netdev_priv(dev);
	struct xfrm_offload *xo = xfrm_offload(skb);
	struct xfrm_state *x = NULL;
	xfrm_address_t hop = {};
	struct sa *sa, *use = NULL;
	struct rule *rule;
	struct ethhdr *eth;
	u16 family, outer_family = 0;
	int err = -ENOENT;

	if (xo) {
		struct sec_path *sp = skb_sec_path(skb);

		x = sp->xvec[sp->len - 1];
		/* What was opened on its way in, and goes on, carries its past with it. */
		if (x->xso.dir == XFRM_DEV_OFFLOAD_OUT)
			return xmit_crypto(nic, skb, x);
	}
	if (skb->protocol == htons(ETH_P_IP) &&
	    pskb_may_pull(skb, ETH_HLEN + sizeof(struct iphdr)))
		family = AF_INET;
	else if (skb->protocol == htons(ETH_P_IPV6) &&
		 pskb_may_pull(skb, ETH_HLEN + sizeof(struct ipv6hdr)))
		family = AF_INET6;
	else
		return pass_down(nic, skb);

	skb = own(skb);
	if (!skb) {
		count_drop(nic);
		return NETDEV_TX_OK;
	}
	spin_lock_bh(&nic->lock);
	rule = match(nic, skb, family);
	if (rule && broken) {
		spin_unlock_bh(&nic->lock);
		return pass_down(nic, skb);
	}
	if (!rule || (rule->action == XFRM_POLICY_ALLOW && !rule->reqid)) {
		nic->tx_clear++;
		spin_unlock_bh(&nic->lock);
		return pass_down(nic, skb);
	}
	if (rule->action == XFRM_POLICY_ALLOW)
		list_for_each_entry(sa, &nic->sas, list)
			if (packet_mode(sa) && sa->x->xso.dir == XFRM_DEV_OFFLOAD_OUT &&
			    sa->x->props.reqid == rule->reqid) {
				use = sa;
				break;
			}
	if (use) {
		x = use->x;
		xfrm_state_hold(x);
		hop = x->id.daddr;
		outer_family = x->props.family;
		err = wrap(nic, use, skb, family);
	}
	if (!err)
		nic->tx_sealed++;
	spin_unlock_bh(&nic->lock);
	if (use) {
		/* Tells who listens that a limit is reached. */
		spin_lock_bh(&x->lock);
		if (x->km.state == XFRM_STATE_VALID)
			xfrm_state_check_expire(x);
		spin_unlock_bh(&x->lock);
		xfrm_state_put(x);
	}
	if (err)
		return refuse(nic, skb);
	eth = (struct ethhdr *)skb->data;
	if (!ether_addr_equal(eth->h_source, dev->dev_addr)) {
		ether_addr_copy(eth->h_source, dev->dev_addr);
		if (!next_hop(dev, outer_family, &hop, eth->h_dest))
			return refuse(nic, skb);
	}
	return pass_down(nic, skb);
}

/* ---- In ---- */

/* The whole number of which a packet carries the low half (RFC 4303, appendix A). */
static u64 infer(const struct sa *sa, u32 low)
{
	u32 top = sa->seq, high = sa->seq >> 32, bottom = top - (WINDOW - 1);

	if (!esn(sa))
		return low;
	if (top >= WINDOW - 1)
		high += low < bottom;
	else
		high -= low >= bottom;
	return (u64)high << 32 | low;
}

static bool replayed(const struct sa *sa, u64 seq)
{
	if (!seq || seq > sa->seq)
		return !seq || (esn(sa) && seq >> 32 == U32_MAX && !(sa->seq >> 32));
	return sa->seq - seq >= WINDOW || test_bit(sa->seq - seq, sa->seen);
}

static void mark_seen(struct sa *sa, u64 seq)
{
	if (seq > sa->seq) {
		u64 step = min_t(u64, seq - sa->seq, WINDOW);

		bitmap_shift_left(sa->seen, sa->seen, step, WINDOW);
		sa->seq = seq;
	}
	__set_bit(sa->seq - seq, sa->seen);
}

/* Opens a packet of packet mode, and leaves the frame that was in it. */
static int unwrap(struct sa *sa, struct sk_buff *skb, const struct outer *outer)
{
	u8 *esp = skb->data + outer->esp, *mac = skb_mac_header(skb), *inner;
	unsigned int len = outer->end - outer->esp, pad;
	u64 seq = infer(sa, get_unaligned_be32(esp + 4));
	__be16 proto;

	if (replayed(sa, seq)) {
		sa->replayed++;
		return -EINVAL;
	}
	if (crypt(sa, esp, len, seq, false)) {
		sa->forged++;
		return -EBADMSG;
	}
	mark_seen(sa, seq);
	inner = esp + ESP_HEAD;
	len -= ESP_HEAD + ICV_LEN;
	pad = inner[len - 2];
	proto = inner[len - 1] == IPPROTO_IPIP ? htons(ETH_P_IP) : htons(ETH_P_IPV6);
	if ((inner[len - 1] != IPPROTO_IPIP && inner[len - 1] != IPPROTO_IPV6) ||
	    len < pad + 2 + sizeof(struct iphdr))
		return -EINVAL;
	sa->packets++;
	sa->bytes += len - pad - 2;
	skb_pull(skb, outer->esp + ESP_HEAD);
	skb_trim(skb, len - pad - 2);
	memmove(skb->data - ETH_HLEN, mac, 2 * ETH_ALEN);
	((struct ethhdr *)(skb->data - ETH_HLEN))->h_proto = proto;
	skb->protocol = proto;
	skb_set_mac_header(skb, -ETH_HLEN);
	skb_reset_network_header(skb);
	skb_reset_transport_header(skb);
	skb_reset_mac_len(skb);
	skb_clear_hash(skb);
	return 0;
}

/* Opens what is for one of our associations. An error: drop it. Zero: it goes up. */
static int open_frame(struct nic *nic, struct sk_buff **pskb, const struct outer *outer)
{
	struct sk_buff *skb = *pskb;
	__be32 spi = *(__be32 *)(skb->data + outer->esp);
	struct sa *sa, *use = NULL;
	struct xfrm_offload *xo;
	struct sec_path *sp;
	int err;

	list_for_each_entry(sa, &nic->sas, list)
		if (sa->x->xso.dir == XFRM_DEV_OFFLOAD_IN && sa->x->id.spi == spi &&
		    sa->x->props.family == outer->family &&
		    xfrm_addr_equal(&sa->x->id.daddr, &outer->daddr, outer->family)) {
			use = sa;
			break;
		}
	if (!use)
		return 0;
	skb = *pskb = own(skb);
	if (!skb || pskb_trim(skb, outer->end))
		return -ENOMEM;
	skb->ip_summed = CHECKSUM_NONE;
	if (packet_mode(use)) {
		err = unwrap(use, skb, outer);
		if (err)
			return err;
	} else {
		u8 *esp = skb->data + outer->esp;
		__be32 low = *(__be32 *)(esp + 4);
		/* Read without the state's lock: at worst it fails at the turn of 2^32. */
		u64 seq = (u64)xfrm_replay_seqhi(use->x, low) << 32 | ntohl(low);

		err = crypt(use, esp, outer->end - outer->esp, seq, false);
	}
	sp = secpath_set(skb);
	if (!sp || sp->len == XFRM_MAX_DEPTH)
		return -ENOMEM;
	xfrm_state_hold(use->x);
	sp->xvec[sp->len++] = use->x;
	sp->olen++;
	xo = xfrm_offload(skb);
	xo->flags = CRYPTO_DONE;
	xo->status = err ? CRYPTO_TUNNEL_ESP_AUTH_FAILED : CRYPTO_SUCCESS;
	nic->rx_opened += !err;
	return 0;
}

static rx_handler_result_t espnic_rx(struct sk_buff **pskb)
{
	struct sk_buff *skb = skb_share_check(*pskb, GFP_ATOMIC);
	struct outer outer;
	struct nic *nic;
	int err;

	if (!skb)
		return RX_HANDLER_CONSUMED;
	nic = rcu_dereference(skb->dev->rx_handler_data);
	if (!netif_running(nic->dev)) {
		kfree_skb(skb);
		return RX_HANDLER_CONSUMED;
	}
	if (!skb_vlan_tag_present(skb) && parse_outer(skb, 0, &outer)) {
		spin_lock_bh(&nic->lock);
		err = open_frame(nic, &skb, &outer);
		nic->dropped += !!err;
		spin_unlock_bh(&nic->lock);
		if (err) {
			dev_core_stats_rx_dropped_inc(nic->dev);
			kfree_skb(skb);
			return RX_HANDLER_CONSUMED;
		}
	}
	dev_sw_netstats_rx_add(nic->dev, skb->len + ETH_HLEN);
	skb->dev = nic->dev;
	*pskb = skb;
	return RX_HANDLER_ANOTHER;
}

/* ---- What the kernel asks of the card ---- */

#define REFUSE_IF(condition, words) do {		\
	if (condition) {				\
		NL_SET_ERR_MSG_MOD(extack, words);	\
		return -EINVAL;				\
	}						\
} while (0)

static int check_state(struct xfrm_state *x, struct netlink_ext_ack *extack)
{
	bool packet = x->xso.type == XFRM_DEV_OFFLOAD_PACKET;
	struct xfrm_lifetime_cfg *lft = &x->lft;

	REFUSE_IF(!(modes & (packet ? MODE_PACKET : MODE_CRYPTO)), "The card cannot do this mode");
	REFUSE_IF(x->id.proto != IPPROTO_ESP, "Only ESP");
	REFUSE_IF(x->props.aalgo != SADB_AALG_NONE || x->props.calgo != SADB_X_CALG_NONE,
		  "No authentication or compression of its own");
	REFUSE_IF(!x->aead || strcmp(x->aead->alg_name, "rfc4106(gcm(aes))"), "Only AES-GCM");
	REFUSE_IF(x->aead->alg_icv_len != 128, "Only an ICV of 128 bit");
	REFUSE_IF(x->aead->alg_key_len != 128 + 32 && x->aead->alg_key_len != 256 + 32,
		  "Only keys of 128 or 256 bit");
	REFUSE_IF(!x->geniv || strcmp(x->geniv, "seqiv"), "Only geniv seqiv");
	REFUSE_IF(x->encap, "No encapsulation in UDP");
	REFUSE_IF(x->tfcpad, "No TFC padding");
	REFUSE_IF(x->props.family != AF_INET && x->props.family != AF_INET6, "Only IP");
	REFUSE_IF(x->sel.proto && x->sel.proto != IPPROTO_TCP && x->sel.proto != IPPROTO_UDP,
		  "No upper protocol but TCP and UDP");
	REFUSE_IF(x->props.mode != XFRM_MODE_TUNNEL &&
		  (packet || x->props.mode != XFRM_MODE_TRANSPORT),
		  "Only tunnel mode, and transport mode for crypto");
	if (!packet)
		return 0;
	REFUSE_IF(!x->props.reqid, "No packet offload without reqid");
	REFUSE_IF(x->replay_esn && x->xso.dir == XFRM_DEV_OFFLOAD_IN &&
		  x->replay_esn->replay_window != 32 && x->replay_esn->replay_window != 64 &&
		  x->replay_esn->replay_window != 128 && x->replay_esn->replay_window != 256,
		  "Only a replay window of 32, 64, 128 or 256");
	REFUSE_IF(!lft->soft_byte_limit || !lft->hard_byte_limit || !lft->soft_packet_limit ||
		  !lft->hard_packet_limit, "No limits of 0");
	REFUSE_IF((lft->hard_byte_limit != XFRM_INF &&
		   lft->soft_byte_limit >= lft->hard_byte_limit) ||
		  (lft->hard_packet_limit != XFRM_INF &&
		   lft->soft_packet_limit >= lft->hard_packet_limit),
		  "Hard limits must be above soft ones");
	return 0;
}

static void free_sa(struct sa *sa)
{
	if (sa->request)
		aead_request_free(sa->request);
	if (!IS_ERR_OR_NULL(sa->aead))
		crypto_free_aead(sa->aead);
	kfree_sensitive(sa);
}

static int prepare_cipher(struct sa *sa)
{
	struct xfrm_algo_aead *key = sa->x->aead;
	int err;

	sa->aead = crypto_alloc_aead(key->alg_name, 0, CRYPTO_ALG_ASYNC);
	if (IS_ERR(sa->aead))
		return PTR_ERR(sa->aead);
	err = crypto_aead_setkey(sa->aead, key->alg_key, key->alg_key_len / 8);
	if (!err)
		err = crypto_aead_setauthsize(sa->aead, ICV_LEN);
	if (err)
		return err;
	sa->request = aead_request_alloc(sa->aead, GFP_KERNEL);
	return sa->request ? 0 : -ENOMEM;
}

static void begin_numbers(struct sa *sa)
{
	struct xfrm_replay_state_esn *r = sa->x->replay_esn;

	if (sa->x->xso.dir == XFRM_DEV_OFFLOAD_OUT) {
		sa->seq = r ? (u64)r->oseq_hi << 32 | r->oseq : sa->x->replay.oseq;
		return;
	}
	sa->seq = r ? (u64)r->seq_hi << 32 | r->seq : sa->x->replay.seq;
	/* Who goes on with old numbers has seen all of them. */
	if (sa->seq)
		bitmap_fill(sa->seen, WINDOW);
}

static int espnic_state_add(struct xfrm_state *x, struct netlink_ext_ack *extack)
{
	struct nic *nic = netdev_priv(x->xso.real_dev);
	u8 mac[ETH_ALEN];
	struct sa *sa;
	int err;

	/* A state that waits for its keys is the kernel's own affair. */
	if (x->xso.flags & XFRM_DEV_OFFLOAD_FLAG_ACQ)
		return 0;
	err = check_state(x, extack);
	if (err)
		return err;
	sa = kzalloc(sizeof(*sa), GFP_KERNEL);
	if (!sa)
		return -ENOMEM;
	sa->x = x;
	err = prepare_cipher(sa);
	if (err)
		goto fail;
	begin_numbers(sa);
	sa->packets_max = x->lft.hard_packet_limit;
	sa->bytes_max = x->lft.hard_byte_limit;
	spin_lock_bh(&nic->lock);
	if (nic->sa_count >= sa_max) {
		NL_SET_ERR_MSG_MOD(extack, "The card is full");
		err = -ENOSPC;
	} else {
		nic->sa_count++;
		list_add(&sa->list, &nic->sas);
		x->xso.offload_handle = (unsigned long)sa;
	}
	spin_unlock_bh(&nic->lock);
	if (err)
		goto fail;
	/* So that the first packet finds its way. */
	if (packet_mode(sa) && x->xso.dir == XFRM_DEV_OFFLOAD_OUT)
		next_hop(nic->dev, x->props.family, &x->id.daddr, mac);
	return 0;
fail:
	free_sa(sa);
	return err;
}

static void espnic_state_delete(struct xfrm_state *x)
{
	struct nic *nic = netdev_priv(x->xso.real_dev);
	struct sa *sa = (struct sa *)x->xso.offload_handle;

	if (!sa)
		return;
	spin_lock_bh(&nic->lock);
	if (!list_empty(&sa->list)) {
		list_del_init(&sa->list);
		nic->sa_count--;
	}
	spin_unlock_bh(&nic->lock);
}

static void espnic_state_free(struct xfrm_state *x)
{
	struct sa *sa = (struct sa *)x->xso.offload_handle;

	if (!sa)
		return;
	espnic_state_delete(x);
	x->xso.offload_handle = 0;
	free_sa(sa);
}

static bool espnic_offload_ok(struct sk_buff *skb, struct xfrm_state *x)
{
	return x->props.family == AF_INET ? ip_hdr(skb)->ihl == 5
					  : !ipv6_ext_hdr(ipv6_hdr(skb)->nexthdr);
}

static void espnic_advance_esn(struct xfrm_state *x)
{
	/* The kernel tells the high half with each packet, or it is inferred. */
}

static void espnic_update_stats(struct xfrm_state *x)
{
	struct nic *nic = netdev_priv(x->xso.real_dev);
	struct sa *sa = (struct sa *)x->xso.offload_handle;

	if (!sa || x->xso.type != XFRM_DEV_OFFLOAD_PACKET)
		return;
	spin_lock_bh(&nic->lock);
	x->curlft.packets += sa->packets - sa->told_packets;
	x->curlft.bytes += sa->bytes - sa->told_bytes;
	sa->told_packets = sa->packets;
	sa->told_bytes = sa->bytes;
	x->stats.replay += sa->replayed;
	x->stats.integrity_failed += sa->forged;
	sa->replayed = 0;
	sa->forged = 0;
	spin_unlock_bh(&nic->lock);
}

static int espnic_policy_add(struct xfrm_policy *p, struct netlink_ext_ack *extack)
{
	struct nic *nic = netdev_priv(p->xdo.dev);
	const struct xfrm_selector *sel = &p->selector;
	struct rule *rule;

	REFUSE_IF(!(modes & MODE_PACKET), "The card cannot do this mode");
	REFUSE_IF(p->type != XFRM_POLICY_TYPE_MAIN, "Only main policies");
	REFUSE_IF(p->xfrm_nr > 1, "No more than one template");
	REFUSE_IF(p->xdo.dir != XFRM_DEV_OFFLOAD_IN && p->xdo.dir != XFRM_DEV_OFFLOAD_OUT,
		  "No forward policies");
	REFUSE_IF(!p->xfrm_vec[0].reqid && !sel->proto &&
		  xfrm_addr_any(&sel->saddr, sel->family) &&
		  xfrm_addr_any(&sel->daddr, sel->family), "No reqid and no selector");
	REFUSE_IF(sel->proto && sel->proto != IPPROTO_TCP && sel->proto != IPPROTO_UDP,
		  "No upper protocol but TCP and UDP");
	REFUSE_IF(p->priority == U32_MAX, "No such priority");

	rule = kzalloc(sizeof(*rule), GFP_KERNEL);
	if (!rule)
		return -ENOMEM;
	rule->sel = *sel;
	rule->priority = p->priority;
	rule->reqid = p->xfrm_nr ? p->xfrm_vec[0].reqid : 0;
	rule->dir = p->xdo.dir;
	rule->action = p->action;
	spin_lock_bh(&nic->lock);
	list_add_tail(&rule->list, &nic->rules);
	spin_unlock_bh(&nic->lock);
	p->xdo.offload_handle = (unsigned long)rule;
	return 0;
}

static void espnic_policy_delete(struct xfrm_policy *p)
{
	struct nic *nic = netdev_priv(p->xdo.dev);
	struct rule *rule = (struct rule *)p->xdo.offload_handle;

	if (!rule)
		return;
	spin_lock_bh(&nic->lock);
	list_del_init(&rule->list);
	spin_unlock_bh(&nic->lock);
}

static void espnic_policy_free(struct xfrm_policy *p)
{
	espnic_policy_delete(p);
	kfree((struct rule *)p->xdo.offload_handle);
	p->xdo.offload_handle = 0;
}

static const struct xfrmdev_ops espnic_xfrm_ops = {
	.xdo_dev_state_add = espnic_state_add,
	.xdo_dev_state_delete = espnic_state_delete,
	.xdo_dev_state_free = espnic_state_free,
	.xdo_dev_offload_ok = espnic_offload_ok,
	.xdo_dev_state_advance_esn = espnic_advance_esn,
	.xdo_dev_state_update_stats = espnic_update_stats,
	.xdo_dev_policy_add = espnic_policy_add,
	.xdo_dev_policy_delete = espnic_policy_delete,
	.xdo_dev_policy_free = espnic_policy_free,
};

/* ---- The device: /sys/class/net/NAME/espnic has its counters ---- */

#define COUNTER(name)									\
static ssize_t name##_show(struct device *d, struct device_attribute *a, char *text)	\
{											\
	struct nic *nic = netdev_priv(to_net_dev(d));					\
											\
	return sysfs_emit(text, "%llu\n", READ_ONCE(nic->name));			\
}											\
static DEVICE_ATTR_RO(name)

COUNTER(tx_sealed);
COUNTER(rx_opened);
COUNTER(tx_clear);
COUNTER(dropped);

static struct attribute *espnic_attributes[] = {
	&dev_attr_tx_sealed.attr, &dev_attr_rx_opened.attr, &dev_attr_tx_clear.attr,
	&dev_attr_dropped.attr, NULL
};

static const struct attribute_group espnic_counters = {
	.name = "espnic", .attrs = espnic_attributes,
};

static int espnic_open(struct net_device *dev)
{
	struct nic *nic = netdev_priv(dev);
	int err = dev_open(nic->lower, NULL);

	return err ? err : dev_set_promiscuity(nic->lower, 1);
}

static int espnic_stop(struct net_device *dev)
{
	struct nic *nic = netdev_priv(dev);

	dev_set_promiscuity(nic->lower, -1);
	return 0;
}

static int espnic_hold(struct net_device *dev)
{
	struct nic *nic = netdev_priv(dev);

	netdev_hold(nic->lower, &nic->lower_tracker, GFP_KERNEL);
	return 0;
}

static void espnic_release(struct net_device *dev)
{
	struct nic *nic = netdev_priv(dev);

	netdev_put(nic->lower, &nic->lower_tracker);
}

static const struct net_device_ops espnic_ops = {
	.ndo_init = espnic_hold,
	.ndo_open = espnic_open,
	.ndo_stop = espnic_stop,
	.ndo_start_xmit = espnic_xmit,
	.ndo_get_stats64 = dev_get_tstats64,
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_validate_addr = eth_validate_addr,
};

static void espnic_setup(struct net_device *dev)
{
	ether_setup(dev);
	dev->netdev_ops = &espnic_ops;
	dev->xfrmdev_ops = &espnic_xfrm_ops;
	dev->features = NETIF_F_HW_ESP;
	dev->hw_features = NETIF_F_HW_ESP;
	dev->hw_enc_features = NETIF_F_HW_ESP;
	dev->lltx = true;
	dev->priv_flags |= IFF_NO_QUEUE;
	dev->priv_flags &= ~IFF_TX_SKB_SHARING;
	dev->pcpu_stat_type = NETDEV_PCPU_STAT_TSTATS;
	dev->sysfs_groups[0] = &espnic_counters;
	dev->needs_free_netdev = true;
	dev->priv_destructor = espnic_release;
}

static int espnic_newlink(struct net *net, struct net_device *dev, struct nlattr *tb[],
			  struct nlattr *data[], struct netlink_ext_ack *extack)
{
	struct nic *nic = netdev_priv(dev);
	struct net_device *lower;
	int err;

	lower = tb[IFLA_LINK] ? __dev_get_by_index(net, nla_get_u32(tb[IFLA_LINK])) : NULL;
	if (!lower || lower->type != ARPHRD_ETHER || lower->flags & IFF_LOOPBACK) {
		NL_SET_ERR_MSG_MOD(extack, "Needs an Ethernet device to stand on");
		return -ENODEV;
	}
	nic->dev = dev;
	nic->lower = lower;
	spin_lock_init(&nic->lock);
	INIT_LIST_HEAD(&nic->sas);
	INIT_LIST_HEAD(&nic->rules);
	if (!tb[IFLA_ADDRESS])
		eth_hw_addr_inherit(dev, lower);
	dev->max_mtu = lower->mtu;
	if (!tb[IFLA_MTU])
		dev->mtu = lower->mtu;
	dev->needed_headroom = LL_RESERVED_SPACE(lower);

	err = netdev_rx_handler_register(lower, espnic_rx, nic);
	if (err)
		return err;
	err = register_netdevice(dev);
	if (err)
		goto unhook;
	err = netdev_upper_dev_link(lower, dev, extack);
	if (err)
		goto unregister;
	netif_stacked_transfer_operstate(lower, dev);
	return 0;

unregister:
	netdev_rx_handler_unregister(lower);
	unregister_netdevice(dev);
	return err;
unhook:
	netdev_rx_handler_unregister(lower);
	return err;
}

static void espnic_dellink(struct net_device *dev, struct list_head *head)
{
	struct nic *nic = netdev_priv(dev);

	netdev_rx_handler_unregister(nic->lower);
	netdev_upper_dev_unlink(nic->lower, dev);
	unregister_netdevice_queue(dev, head);
}

static struct rtnl_link_ops espnic_link_ops __read_mostly = {
	.kind = "espnic",
	.priv_size = sizeof(struct nic),
	.setup = espnic_setup,
	.newlink = espnic_newlink,
	.dellink = espnic_dellink,
};

/* What happens to the lower device happens to the card. */
static int espnic_event(struct notifier_block *block, unsigned long event, void *info)
{
	struct net_device *lower = netdev_notifier_info_to_dev(info);
	LIST_HEAD(list);
	struct nic *nic;

	if (rtnl_dereference(lower->rx_handler) != espnic_rx)
		return NOTIFY_DONE;
	nic = rtnl_dereference(lower->rx_handler_data);
	switch (event) {
	case NETDEV_UP:
	case NETDEV_DOWN:
	case NETDEV_CHANGE:
		netif_stacked_transfer_operstate(lower, nic->dev);
		break;
	case NETDEV_CHANGEMTU:
		nic->dev->max_mtu = lower->mtu;
		dev_set_mtu(nic->dev, lower->mtu);
		break;
	case NETDEV_UNREGISTER:
		if (lower->reg_state != NETREG_UNREGISTERING)
			break;
		espnic_dellink(nic->dev, &list);
		unregister_netdevice_many(&list);
		break;
	}
	return NOTIFY_DONE;
}

static struct notifier_block espnic_notifier = { .notifier_call = espnic_event };

static int __init espnic_init(void)
{
	int err = register_netdevice_notifier(&espnic_notifier);

	if (err)
		return err;
	err = rtnl_link_register(&espnic_link_ops);
	if (err)
		unregister_netdevice_notifier(&espnic_notifier);
	return err;
}

static void __exit espnic_exit(void)
{
	rtnl_link_unregister(&espnic_link_ops);
	unregister_netdevice_notifier(&espnic_notifier);
}

module_init(espnic_init);
module_exit(espnic_exit);
MODULE_ALIAS_RTNL_LINK("espnic");
MODULE_DESCRIPTION("Simulated network card with IPsec offload, for tests");
MODULE_LICENSE("GPL");
