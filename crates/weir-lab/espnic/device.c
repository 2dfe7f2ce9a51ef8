// SPDX-License-Identifier: GPL-2.0
/* The device over another one. /sys/class/net/NAME/espnic has its counters. */

#include <linux/etherdevice.h>
#include <linux/module.h>
#include <net/rtnetlink.h>

#include "espnic.h"

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
